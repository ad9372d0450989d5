//! What did the command line say? `--name value` pairs; a name nobody asked for is a mistake and is said so.

use std::str::FromStr;

/// The pairs not asked for yet.
pub struct Args {
    pairs: Vec<(String, String)>,
}

impl Args {
    /// This process's arguments.
    ///
    /// # Errors
    /// A sentence, where they are not pairs.
    pub fn read() -> Result<Self, String> {
        let mut words = std::env::args().skip(1);
        let mut pairs = Vec::new();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                return Err(format!(
                    "{word:?} is not an option; options are written --name value"
                ));
            };
            let Some(value) = words.next() else {
                return Err(format!("--{name} has no value"));
            };
            pairs.push((name.to_owned(), value));
        }
        Ok(Self { pairs })
    }

    /// The value of `name`, or `otherwise` where it is not given.
    ///
    /// # Errors
    /// A sentence, where the value cannot be read as a `T`.
    pub fn take<T: FromStr>(&mut self, name: &str, otherwise: T) -> Result<T, String> {
        let Some(at) = self.pairs.iter().position(|(given, _)| given == name) else {
            return Ok(otherwise);
        };
        let (_, value) = self.pairs.remove(at);
        value
            .parse()
            .map_err(|_| format!("--{name} cannot be {value:?}"))
    }

    /// Call when every option has been asked for.
    ///
    /// # Errors
    /// A sentence that names an option nobody asked for.
    pub fn finish(self) -> Result<(), String> {
        match self.pairs.first() {
            Some((name, _)) => Err(format!("there is no option --{name}")),
            None => Ok(()),
        }
    }
}
