//! Kept connections to one destination: last in, first out, bounded in number and age.

use super::UpConn;
use std::{
    future::poll_fn,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    pub idle_max: usize,
    pub age_max: Duration,
}

#[derive(Default)]
pub struct Pool {
    idle: Mutex<Vec<UpConn>>,
    limits: PoolLimits,
    /// Reads that brought bytes of answers to forwarded requests.
    heard: AtomicU64,
}

impl Default for PoolLimits {
    fn default() -> Self {
        PoolLimits {
            idle_max: 256,
            age_max: Duration::from_secs(30),
        }
    }
}

impl Pool {
    pub fn new(limits: PoolLimits) -> Self {
        Pool {
            idle: Mutex::default(),
            limits,
            heard: AtomicU64::new(0),
        }
    }

    /// The most recently used connection that still looks alive.
    pub async fn take(&self) -> Option<UpConn> {
        loop {
            let mut conn = self.lock().pop()?;
            // Nobody drives an idle connection, so this look finds out what happened to it.
            if poll_fn(|cx| Poll::Ready(conn.poll_is_fresh(cx))).await {
                return Some(conn);
            }
        }
    }

    pub fn put(&self, mut conn: UpConn) {
        conn.rest();
        let mut idle = self.lock();
        if idle.len() < self.limits.idle_max {
            idle.push(conn);
        }
    }

    /// Closes what has been idle for too long.
    pub fn sweep(&self) {
        let now = Instant::now();
        // The oldest stand first.
        let mut idle = self.lock();
        let young = idle
            .iter()
            .position(|c| now.duration_since(c.idle_since) < self.limits.age_max);
        let aged = young.unwrap_or(idle.len());
        let old: Vec<UpConn> = idle.drain(..aged).collect();
        drop(idle);
        drop(old);
    }

    /// Closes all that is kept.
    pub fn close(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }

    pub(super) fn heard(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn times_heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UpConn>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
