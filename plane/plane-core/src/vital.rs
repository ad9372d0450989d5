//! What the plane cannot be without: a panic in it is told, instead of leaving the rest to go on alone.
//!
//! What serves one connection is not vital: what it holds is given back when it is dropped, so its panic costs
//! that connection and no other.

use futures::FutureExt;
use std::{any::Any, future::Future, panic::AssertUnwindSafe};

/// Runs this to its end; a panic in it is told as a sentence.
pub(crate) async fn watched(
    what: &'static str,
    work: impl Future<Output = ()>,
    tell: impl FnOnce(String),
) {
    if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
        tell(sentence(what, &*panic));
    }
}

pub(crate) fn sentence(what: &str, panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("{what} panicked: {}", text.unwrap_or("it did not say why"))
}

#[cfg(test)]
mod tests {
    use super::watched;
    use std::sync::Mutex;

    async fn told_of(work: impl Future<Output = ()>) -> Option<String> {
        let told = Mutex::new(None);
        watched("the part", work, |why| *told.lock().unwrap() = Some(why)).await;
        told.into_inner().unwrap()
    }

    #[tokio::test]
    async fn a_panic_is_told_with_what_it_said() {
        let said = told_of(async { panic!("no room") }).await;
        assert_eq!(said.unwrap(), "the part panicked: no room");
        let number = 7;
        let said = told_of(async move { panic!("no room for {number}") }).await;
        assert_eq!(said.unwrap(), "the part panicked: no room for 7");
    }

    #[tokio::test]
    async fn what_ends_as_it_should_is_not_told() {
        assert_eq!(told_of(async {}).await, None);
    }
}
