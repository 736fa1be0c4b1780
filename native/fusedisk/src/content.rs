//! The current contents of one file, and its durable contents, which are the contents at its last
//! sync.
//!
//! A file of the host, the *object*, always has the current contents. Memory holds only what is
//! needed to restore the durable contents: the durable size, and the old contents of blocks that
//! were overwritten since the last sync. So a file that only grows needs no memory, and a sync
//! frees all of it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use crate::draws::Draws;

/// The size of a block whose old contents are kept: one page of the kernel's cache.
pub const BLOCK: u64 = 4096;
/// The number of bytes that a device writes atomically.
const SECTOR: usize = 512;
const BLOCK_BYTES: usize = BLOCK as usize;

/// The durable contents of a block; `None` means a block of zeros.
type Old = Option<Box<[u8; BLOCK_BYTES]>>;

/// One regular file.
#[derive(Debug)]
pub struct Content {
    object: PathBuf,
    file: Option<File>,
    size: u64,
    durable_size: u64,
    old: BTreeMap<u64, Old>,
    unsynced_bytes: u64,
}

impl Content {
    /// Create an empty file, with no durable contents.
    pub fn create(object: PathBuf) -> io::Result<Content> {
        File::create_new(&object)?;
        Ok(Content {
            object,
            file: None,
            size: 0,
            durable_size: 0,
            old: BTreeMap::new(),
            unsynced_bytes: 0,
        })
    }

    /// The current size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The space that the object takes on the host, in blocks of 512 bytes.
    pub fn blocks(&self) -> u64 {
        std::fs::metadata(&self.object).map_or(0, |found| found.blocks())
    }

    /// Whether a power cut would change the size of the file.
    pub fn size_is_unsynced(&self) -> bool {
        self.size != self.durable_size
    }

    /// The number of bytes of old contents in memory.
    pub fn held_bytes(&self) -> u64 {
        self.old.len() as u64 * BLOCK
    }

    fn file(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&self.object)?;
            self.file = Some(file);
        }
        Ok(self.file.as_ref().expect("opened above"))
    }

    /// Close the object's descriptor, because no process has the file open.
    pub fn rest(&mut self) {
        self.file = None;
    }

    /// Remove the object from the host.
    pub fn remove(self) -> io::Result<()> {
        std::fs::remove_file(self.object)
    }

    /// Read `size` bytes from `offset` on; fewer only at the end of the file.
    pub fn read(&mut self, offset: u64, size: usize) -> io::Result<Vec<u8>> {
        let size = size.min(self.size.saturating_sub(offset) as usize);
        let mut data = vec![0; size];
        self.file()?.read_exact_at(&mut data, offset)?;
        Ok(data)
    }

    /// Save the durable contents of the blocks from byte `begin` to byte `end` (exclusive).
    fn keep(&mut self, begin: u64, end: u64) -> io::Result<()> {
        let end = end.min(self.durable_size);
        if begin >= end {
            return Ok(());
        }
        for block in begin / BLOCK..end.div_ceil(BLOCK) {
            if self.old.contains_key(&block) {
                continue;
            }
            let mut data = Box::new([0; BLOCK_BYTES]);
            let there = self.size.saturating_sub(block * BLOCK).min(BLOCK) as usize;
            self.file()?
                .read_exact_at(&mut data[..there], block * BLOCK)?;
            let zeros = data.iter().all(|byte| *byte == 0);
            self.old
                .insert(block, if zeros { None } else { Some(data) });
        }
        Ok(())
    }

    /// Write data that is not durable before the next sync.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        self.keep(offset, end)?;
        self.file()?.write_all_at(data, offset)?;
        self.size = self.size.max(end);
        self.unsynced_bytes += data.len() as u64;
        Ok(())
    }

    /// Change the size, which is not durable before the next sync.
    pub fn resize(&mut self, size: u64) -> io::Result<()> {
        if size < self.size {
            self.keep(size, self.size)?;
        }
        self.unsynced_bytes += self.size.saturating_sub(size);
        self.file()?.set_len(size)?;
        self.size = size;
        Ok(())
    }

    /// Make the current contents durable.
    pub fn sync(&mut self) {
        self.old.clear();
        self.durable_size = self.size;
        self.unsynced_bytes = 0;
    }

    /// Restore the durable contents. With `torn`, a random part of the unsynced data survives.
    ///
    /// Returns the number of bytes written since the last sync, all of which could have been lost.
    pub fn cut(&mut self, torn: Option<&mut Draws>) -> io::Result<u64> {
        let at_stake = std::mem::take(&mut self.unsynced_bytes);
        if self.old.is_empty() && self.size == self.durable_size {
            return Ok(at_stake);
        }
        let size = match torn {
            Some(draws) => self.tear(draws)?,
            None => self.durable_size,
        };
        self.file()?.set_len(size)?;
        for (block, data) in std::mem::take(&mut self.old) {
            let there = size.saturating_sub(block * BLOCK).min(BLOCK) as usize;
            let data = data.unwrap_or_else(|| Box::new([0; BLOCK_BYTES]));
            self.file()?.write_all_at(&data[..there], block * BLOCK)?;
        }
        self.size = size;
        self.durable_size = size;
        self.rest();
        Ok(at_stake)
    }

    /// Decide what survives: afterwards `old` has the blocks to restore. Returns the new size.
    ///
    /// The rules are those of ext4 in ordered mode. Data are written before the size that includes
    /// them, so a prefix of the appended data survives. A truncation survives completely or not at
    /// all. Blocks that were overwritten in place reach the disk in any order, and each sector is
    /// atomic.
    fn tear(&mut self, draws: &mut Draws) -> io::Result<u64> {
        let size = if self.size >= self.durable_size {
            self.durable_size + draws.below(self.size - self.durable_size + 1)
        } else if draws.coin() {
            self.size
        } else {
            self.durable_size
        };
        let grown = size > self.durable_size;
        let boundary = self.durable_size / BLOCK;
        let mut going_back = BTreeMap::new();
        for (block, old) in std::mem::take(&mut self.old) {
            let gone = block * BLOCK >= self.size; // truncated: the block has no new contents
            if (grown && block == boundary) || (!gone && draws.coin()) {
                continue;
            }
            let old = if gone || draws.below(4) > 0 {
                old
            } else {
                Some(self.torn_block(block, old, draws)?)
            };
            going_back.insert(block, old);
        }
        self.old = going_back;
        Ok(size)
    }

    /// Return a block whose first sectors are new and whose other sectors are old.
    fn torn_block(
        &mut self,
        block: u64,
        old: Old,
        draws: &mut Draws,
    ) -> io::Result<Box<[u8; BLOCK_BYTES]>> {
        let mut data = old.unwrap_or_else(|| Box::new([0; BLOCK_BYTES]));
        let there = self.size.saturating_sub(block * BLOCK).min(BLOCK) as usize;
        let new = draws.below((BLOCK_BYTES / SECTOR) as u64 + 1) as usize * SECTOR;
        let new = new.min(there);
        self.file()?
            .read_exact_at(&mut data[..new], block * BLOCK)?;
        Ok(data)
    }
}
