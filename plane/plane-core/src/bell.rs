//! A file descriptor that another thread's event loop watches: an eventfd, or a pipe where there is
//! none.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

#[derive(Debug)]
pub struct Bell {
    read: OwnedFd,
    /// An eventfd is written to where it is read.
    write: Option<OwnedFd>,
}

impl Bell {
    pub fn new() -> io::Result<Bell> {
        #[cfg(target_os = "linux")]
        return Bell::eventfd();
        #[cfg(not(target_os = "linux"))]
        return Bell::pipe();
    }

    #[cfg(target_os = "linux")]
    fn eventfd() -> io::Result<Bell> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Bell {
            read: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            write: None,
        })
    }

    #[cfg(any(test, not(target_os = "linux")))]
    fn pipe() -> io::Result<Bell> {
        use rustix::{fs::OFlags, io::FdFlags};
        let (read, write) = rustix::pipe::pipe()?;
        for fd in [&read, &write] {
            rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK)?;
            rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC)?;
        }
        Ok(Bell {
            read,
            write: Some(write),
        })
    }

    /// Readable from now on until it is silenced.
    pub fn ring(&self) {
        // It fails only when there is no room left, and then the bell rings already.
        let _ = rustix::io::write(
            self.write.as_ref().unwrap_or(&self.read),
            &1u64.to_ne_bytes(),
        );
    }

    pub fn silence(&self) {
        let mut sink = [0u8; 64];
        // What a pipe holds beyond that was rung for more than once.
        while matches!(rustix::io::read(&self.read, &mut sink), Ok(n) if n == sink.len()) {}
    }

    pub fn reader(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::Bell;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn rings(bell: &Bell) -> bool {
        let reader = bell.reader();
        let mut watched = [PollFd::new(&reader, PollFlags::IN)];
        poll(&mut watched, Some(&Timespec::default())).unwrap() == 1
    }

    fn each_kind() -> Vec<Bell> {
        vec![Bell::new().unwrap(), Bell::pipe().unwrap()]
    }

    #[test]
    fn rings_until_silenced() {
        for bell in each_kind() {
            assert!(!rings(&bell), "{bell:?}");
            bell.ring();
            assert!(rings(&bell) && rings(&bell), "{bell:?}");
            bell.silence();
            assert!(!rings(&bell), "{bell:?}");
        }
    }

    #[test]
    fn ringing_without_end_neither_blocks_nor_outlasts_silence() {
        for bell in each_kind() {
            (0..20_000).for_each(|_| bell.ring());
            assert!(rings(&bell), "{bell:?}");
            bell.silence();
            assert!(!rings(&bell), "{bell:?}");
        }
    }
}
