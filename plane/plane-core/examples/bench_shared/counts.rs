//! How many chats has this engine answered, and how many were with it at one time? A router's limits can be held against
//! these.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static ALL: AtomicUsize = AtomicUsize::new(0);

/// One chat that is with the engine, until it is dropped.
pub struct Chat(());

impl Chat {
    /// A chat has come whole.
    pub fn begin() -> Self {
        ALL.fetch_add(1, Relaxed);
        MOST.fetch_max(NOW.fetch_add(1, Relaxed) + 1, Relaxed);
        Self(())
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        NOW.fetch_sub(1, Relaxed);
    }
}

/// `now`, the `most` at one time, and `all` since the last call, as JSON; counting begins anew.
pub fn take() -> String {
    let now = NOW.load(Relaxed);
    let (most, all) = (MOST.swap(now, Relaxed), ALL.swap(0, Relaxed));
    format!(r#"{{"now":{now},"most":{most},"all":{all}}}"#)
}
