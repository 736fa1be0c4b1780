//! The current faults of the disk, and how many requests they have hit.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fuser::Errno;

use crate::draws::Draws;

/// The kinds of requests that faults distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Reads and opens: may be delayed, and may fail with EIO.
    Read,
    /// Writes into the page cache: may fail with EIO or ENOSPC, but are never delayed.
    Write {
        /// Whether the write enlarges the file, and so needs disk space.
        grows: bool,
    },
    /// Syncs, and changes of names and attributes: may be delayed, and may fail with EIO.
    Sync,
    /// Creation of files and folders: may be delayed, and may fail with EIO or ENOSPC.
    Make,
}

/// The faults of a disk. By default there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quality {
    /// The probability that a request fails with EIO.
    pub error: f64,
    /// Whether requests that need disk space fail with ENOSPC.
    pub full: bool,
    /// The delay of each request that may be delayed.
    pub delay: Duration,
}

/// The numbers of requests that a fault has hit since the last call of `touched`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Requests that failed with EIO.
    pub eio: u64,
    /// Requests that failed with ENOSPC.
    pub enospc: u64,
    /// Requests that were delayed.
    pub slow: u64,
}

#[derive(Debug)]
struct State {
    quality: Quality,
    touched: Touched,
    draws: Draws,
    era: u64, // a change of this number ends all delays
}

/// The faults of one disk, shared by all threads that handle requests.
#[derive(Debug)]
pub struct Trouble {
    state: Mutex<State>,
    woken: Condvar,
}

impl Trouble {
    /// Create the state of a disk without faults; `seed` decides which requests fail later.
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

    /// Replace the faults by `quality`, and end the delays of the earlier faults.
    pub fn set(&self, quality: Quality) {
        self.lock().quality = quality;
        self.release();
    }

    /// End all delays at once, for example because a node that is being killed waits for its
    /// requests.
    pub fn release(&self) {
        self.lock().era += 1;
        self.woken.notify_all();
    }

    /// Return the numbers of requests hit since the last call, and reset them.
    pub fn touched(&self) -> Touched {
        std::mem::take(&mut self.lock().touched)
    }

    /// Whether the current faults delay requests of this kind.
    pub fn is_slow(&self, sort: Sort) -> bool {
        !matches!(sort, Sort::Write { .. }) && !self.lock().quality.delay.is_zero()
    }

    /// Block for the current delay, or until `release` or `set` is called.
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

    /// Return the error with which a request of this kind must fail, if any.
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
