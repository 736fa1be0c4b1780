//! How bad the disk is now, and how many requests felt it.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fuser::Errno;

use crate::draws::Draws;

/// What a request does; faults know these sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Reads, and opening: late and erroneous.
    Read,
    /// Writes into the page cache: erroneous, never late; `grows`: it needs room.
    Write {
        /// Whether it needs room.
        grows: bool,
    },
    /// Syncs, and changes of names and attributes: late and erroneous.
    Sync,
    /// New files and folders: late, erroneous, and they need room.
    Make,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quality {
    /// The probability that a request fails with EIO.
    pub error: f64,
    /// Whether what needs room fails with ENOSPC.
    pub full: bool,
    /// How late requests are.
    pub delay: Duration,
}

/// Requests that felt it, since this was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Failed with EIO.
    pub eio: u64,
    /// Failed with ENOSPC.
    pub enospc: u64,
    /// Came late.
    pub slow: u64,
}

#[derive(Debug)]
struct State {
    quality: Quality,
    touched: Touched,
    draws: Draws,
    era: u64, // whoever sleeps wakes when it changes
}

/// The trouble of one disk.
#[derive(Debug)]
pub struct Trouble {
    state: Mutex<State>,
    woken: Condvar,
}

impl Trouble {
    /// A good disk.
    pub fn new(seed: u64) -> Trouble {
        Trouble {
            state: Mutex::new(State {
                quality: Quality::default(),
                touched: Touched::default(),
                draws: Draws::new(seed),
                era: 0,
            }),
            woken: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// From now on it is as bad as this; nobody sleeps on for what was before.
    pub fn set(&self, quality: Quality) {
        self.lock().quality = quality;
        self.release();
    }

    /// Let those that sleep go on: their node is dying and waits for them.
    pub fn release(&self) {
        self.lock().era += 1;
        self.woken.notify_all();
    }

    /// What was felt since this was called last.
    pub fn touched(&self) -> Touched {
        std::mem::take(&mut self.lock().touched)
    }

    /// Whether such a request has to wait.
    pub fn is_slow(&self, sort: Sort) -> bool {
        !matches!(sort, Sort::Write { .. }) && !self.lock().quality.delay.is_zero()
    }

    /// Wait as long as a request has to.
    pub fn wait(&self) {
        let mut state = self.lock();
        let (era, until) = (state.era, Instant::now() + state.quality.delay);
        state.touched.slow += 1;
        while state.era == era {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = match self.woken.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Whether the request fails, and how.
    pub fn strike(&self, sort: Sort) -> Result<(), Errno> {
        let mut state = self.lock();
        let needs_room = matches!(sort, Sort::Make | Sort::Write { grows: true });
        if state.quality.full && needs_room {
            state.touched.enospc += 1;
            return Err(Errno::ENOSPC);
        }
        let error = state.quality.error;
        if error > 0.0 && state.draws.happens(error) {
            state.touched.eio += 1;
            return Err(Errno::EIO);
        }
        Ok(())
    }
}
