//! Polls what seldom has news only when it was woken for it.
//!
//! A task that moves a stream's pieces is woken for each of them. What else could wake it (a command,
//! a timer, the loss of a link, a client that leaves) would be asked anew every time, and each asking
//! takes locks. Behind a waker of its own it is asked again only after it has called.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

#[derive(Default)]
struct Calls {
    has_called: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Calls {
    fn set_task(&self, task: Option<Waker>) {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = task;
    }
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_called.store(true, Ordering::Release);
        // Not taken away: the task notes itself only once.
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = &*task {
            task.wake_by_ref();
        }
    }
}

pub struct Seldom {
    calls: Arc<Calls>,
    waker: Waker,
    /// What `calls` would wake, to be compared without its lock.
    task: Option<Waker>,
}

impl Default for Seldom {
    fn default() -> Self {
        let calls = Arc::new(Calls::default());
        let seldom = Seldom {
            waker: Waker::from(calls.clone()),
            calls,
            task: None,
        };
        seldom.ask_again();
        seldom
    }
}

impl Drop for Seldom {
    fn drop(&mut self) {
        // Whoever keeps the waker must not keep the task.
        self.calls.set_task(None);
    }
}

impl Seldom {
    /// Whether there may be news: at first, and after each call. Then everything behind `waker` has to be polled.
    pub fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        // Before looking, so that a call that comes after the look wakes the task.
        if !self
            .task
            .as_ref()
            .is_some_and(|task| task.will_wake(cx.waker()))
        {
            self.task = Some(cx.waker().clone());
            self.calls.set_task(self.task.clone());
        }
        self.calls.has_called.load(Ordering::Relaxed)
            && self.calls.has_called.swap(false, Ordering::Acquire)
    }

    /// To be polled with, whenever it is due.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Due again at the next asking, as after a call.
    pub fn ask_again(&self) {
        self.calls.has_called.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Seldom;
    use std::{future::poll_fn, task::Poll, time::Duration};
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn due_at_first_and_then_once_for_each_call() {
        let mut seldom = Seldom::default();
        let mut asked = poll_fn(|cx| Poll::Ready(seldom.is_due(cx))).await;
        assert!(asked);
        asked = poll_fn(|cx| Poll::Ready(seldom.is_due(cx))).await;
        assert!(!asked);
        seldom.waker().wake_by_ref();
        asked = poll_fn(|cx| Poll::Ready(seldom.is_due(cx))).await;
        assert!(asked);
        seldom.ask_again();
        asked = poll_fn(|cx| Poll::Ready(seldom.is_due(cx))).await;
        assert!(asked);
    }

    // What is behind it comes from another thread while the task is woken for other things all the time.
    #[tokio::test]
    async fn no_call_is_lost_between_other_wake_ups() {
        const CALLS: usize = 20_000;
        let (rare, mut rares) = mpsc::unbounded_channel();
        let (often, mut oftens) = mpsc::unbounded_channel();
        let sending = std::thread::spawn(move || {
            for number in 0..CALLS {
                rare.send(number).unwrap();
                if number % 64 == 0 {
                    std::thread::yield_now();
                }
                let _ = often.send(());
            }
        });
        let mut seldom = Seldom::default();
        let mut heard = 0;
        let hearing = poll_fn(|cx| {
            while let Poll::Ready(Some(())) = oftens.poll_recv(cx) {}
            if seldom.is_due(cx) {
                let waker = seldom.waker();
                let mut behind = std::task::Context::from_waker(&waker);
                while let Poll::Ready(Some(_)) = rares.poll_recv(&mut behind) {
                    heard += 1;
                }
            }
            if heard == CALLS {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        tokio::time::timeout(Duration::from_secs(60), hearing)
            .await
            .unwrap();
        sending.join().unwrap();
    }
}
