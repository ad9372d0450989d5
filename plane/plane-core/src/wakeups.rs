//! Wake-ups gathered, so that many cost one.
//!
//! Waking a task of the plane's thread from another thread is a system call, and a thread that is
//! woken for one command sends it alone. Who gives several commands in a row therefore puts their
//! wake-ups here and rings once: the plane's own thread then wakes the tasks, which costs nothing,
//! and what they send leaves together.

use std::{
    sync::{Mutex, PoisonError},
    task::Waker,
};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub struct Wakeups {
    gathered: Mutex<Vec<Waker>>,
    bell: Notify,
}

impl Wakeups {
    /// Keeps a wake-up until the next `ring`.
    pub fn gather(&self, waker: Waker) {
        self.lock().push(waker);
    }

    /// Has everything gathered so far woken, by the plane's thread.
    pub fn ring(&self) {
        if !self.lock().is_empty() {
            self.bell.notify_one();
        }
    }

    /// Wakes what was gathered whenever it rings; runs for the life of the plane.
    pub async fn keep_waking(&self) {
        loop {
            self.bell.notified().await;
            let gathered = std::mem::take(&mut *self.lock());
            for waker in gathered {
                waker.wake();
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        // Nobody panics while holding it, and a list of wake-ups is never half changed.
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Wakeups;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::{Wake, Waker},
    };

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn one_ring_wakes_all_that_was_gathered_and_nothing_wakes_without_one() {
        let (wakeups, count) = (Arc::new(Wakeups::default()), Arc::new(Count::default()));
        let waking = tokio::spawn({
            let wakeups = wakeups.clone();
            async move { wakeups.keep_waking().await }
        });
        for _ in 0..3 {
            wakeups.gather(Waker::from(count.clone()));
        }
        tokio::task::yield_now().await;
        assert_eq!(count.0.load(Ordering::Relaxed), 0);

        wakeups.ring();
        tokio::task::yield_now().await;
        assert_eq!(count.0.load(Ordering::Relaxed), 3);

        wakeups.ring();
        tokio::task::yield_now().await;
        assert_eq!(count.0.load(Ordering::Relaxed), 3);
        waking.abort();
    }
}
