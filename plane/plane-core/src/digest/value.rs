//! What does one value of a body add to the figures: text bytes, images, elements?
//!
//! One seed, [`Reader`], walks any value; its role says what a string, an array or an object means in
//! this place. Invariant: a shape that the role does not know adds nothing and is no error, only the
//! grammar and the depth are. Which member has which role is decided in [`super::read`].

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::read::Context;
use super::{DEPTH_MAX, DigestErrorKind};

/// The place that a value stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nobody needs it.
    Skip,
    /// The `messages` member: an array of messages.
    Messages,
    /// The `input` member: a text, or an array of messages and texts.
    Input,
    /// One element of `messages`.
    Message,
    /// One element of `input`, which may be a plain text.
    InputItem,
    /// A text, an array of texts and parts, or one part.
    Content,
    /// The `text` member of a part.
    Text,
    /// The `type` member of a part.
    PartType,
}

/// What was found in one value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// UTF-8 bytes of decoded text.
    pub bytes: u64,
    pub images: u32,
    /// Elements of the array, if the value was one.
    pub items: u32,
    part: PartType,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.images = self.images.saturating_add(other.images);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PartType {
    /// Some engines take a part without a type by its other members.
    #[default]
    Untyped,
    Text,
    Image,
    ToolResult,
    Other,
}

impl PartType {
    fn of(name: &str) -> Self {
        match name {
            "text" | "input_text" | "output_text" => Self::Text,
            "image_url" | "image" | "input_image" => Self::Image,
            "tool_result" => Self::ToolResult,
            _ => Self::Other,
        }
    }
}

/// Reads one value by its role.
#[derive(Clone, Copy)]
pub(super) struct Reader<'c> {
    pub role: Role,
    /// Arrays and objects open around the value.
    pub depth: u32,
    pub context: &'c Context,
}

impl<'c> Reader<'c> {
    fn inside(self, role: Role) -> Reader<'c> {
        Reader { role, ..self }
    }

    /// One level down, unless that is one too many.
    fn enter<E: serde::de::Error>(mut self) -> Result<Self, E> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.context.fail(DigestErrorKind::TooDeep));
        }
        Ok(self)
    }

    fn part<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Seen, A::Error> {
        let (mut text, mut content) = (Seen::default(), Seen::default());
        let mut kind = PartType::Untyped;
        let mut has_image_member = false;
        while let Some(name) = map.next_key_seed(PartNameSeed)? {
            match name {
                PartName::Type => kind = map.next_value_seed(self.inside(Role::PartType))?.part,
                PartName::Text => text.add(map.next_value_seed(self.inside(Role::Text))?),
                PartName::Content => content.add(map.next_value_seed(self.inside(Role::Content))?),
                PartName::ImageUrl => {
                    has_image_member = true;
                    map.next_value_seed(self.inside(Role::Skip))?;
                }
                PartName::Output | PartName::Other => {
                    map.next_value_seed(self.inside(Role::Skip))?;
                }
            }
        }
        let image = Seen {
            images: 1,
            ..Seen::default()
        };
        Ok(match kind {
            PartType::Text => text,
            PartType::Image => image,
            PartType::ToolResult => content,
            PartType::Untyped if has_image_member => image,
            PartType::Untyped => text,
            PartType::Other => Seen::default(),
        })
    }

    fn message<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Seen, A::Error> {
        let mut seen = Seen::default();
        while let Some(name) = map.next_key_seed(PartNameSeed)? {
            let role = match name {
                // A tool's answer on /v1/responses is an item whose text is in `output`.
                PartName::Content | PartName::Output => Role::Content,
                _ => Role::Skip,
            };
            seen.add(map.next_value_seed(self.inside(role))?);
        }
        Ok(seen)
    }

    fn skipped<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Seen, A::Error> {
        while map.next_key_seed(PartNameSeed)?.is_some() {
            map.next_value_seed(self.inside(Role::Skip))?;
        }
        Ok(Seen::default())
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Seen;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Seen, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Seen;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Seen, E> {
        Ok(Seen::default())
    }
    fn visit_bool<E>(self, _: bool) -> Result<Seen, E> {
        Ok(Seen::default())
    }
    fn visit_i64<E>(self, _: i64) -> Result<Seen, E> {
        Ok(Seen::default())
    }
    fn visit_u64<E>(self, _: u64) -> Result<Seen, E> {
        Ok(Seen::default())
    }
    fn visit_f64<E>(self, _: f64) -> Result<Seen, E> {
        Ok(Seen::default())
    }

    fn visit_str<E>(self, text: &str) -> Result<Seen, E> {
        let mut seen = Seen::default();
        match self.role {
            Role::Content | Role::Text | Role::Input | Role::InputItem => {
                seen.bytes = text.len() as u64
            }
            Role::PartType => seen.part = PartType::of(text),
            Role::Skip | Role::Messages | Role::Message => {}
        }
        Ok(seen)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Seen, A::Error> {
        let element = self.enter()?.inside(match self.role {
            Role::Messages => Role::Message,
            Role::Input => Role::InputItem,
            Role::Content => Role::Content,
            _ => Role::Skip,
        });
        let mut seen = Seen::default();
        while let Some(one) = array.next_element_seed(element)? {
            seen.add(one);
            seen.items = seen.items.saturating_add(1);
        }
        Ok(seen)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Seen, A::Error> {
        let member = self.enter()?;
        match self.role {
            Role::Message | Role::InputItem => member.message(map),
            Role::Content => member.part(map),
            _ => member.skipped(map),
        }
    }
}

/// The member names that matter below the top level.
enum PartName {
    Type,
    Text,
    Content,
    ImageUrl,
    Output,
    Other,
}

struct PartNameSeed;

impl<'de> DeserializeSeed<'de> for PartNameSeed {
    type Value = PartName;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PartName, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for PartNameSeed {
    type Value = PartName;
    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a member name")
    }
    fn visit_str<E>(self, name: &str) -> Result<PartName, E> {
        Ok(match name {
            "type" => PartName::Type,
            "text" => PartName::Text,
            "content" => PartName::Content,
            "image_url" => PartName::ImageUrl,
            "output" => PartName::Output,
            _ => PartName::Other,
        })
    }
}
