//! Names, attributes and contents; what of them is durable, and what a power cut leaves.
//!
//! The rule is ext4's (`data=ordered`). All changes of names and attributes go into one journal, in
//! order. An fsync of any file or folder makes the whole journal durable, and of data that file's
//! own; so does fdatasync where the file is new or its size has changed, else it does not touch the
//! journal. Where a new file takes the name of another, its data goes to the disk with its name, as
//! ext4 does it for programs that forget to sync it (`auto_da_alloc`). A cut of a file's size comes
//! with its data. What gets durable with time is up to whoever mounts it (`sync_all`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, INodeNo};

use crate::content::{Content, BLOCK};
use crate::draws::Draws;

/// The inode of the root.
pub const ROOT: u64 = 1;
/// So many old blocks may be held in memory; above that a file is written back early.
const HELD_BYTES_MAX: u64 = 256 << 20;
/// So many changes may wait for a sync; above that the journal is committed early.
const JOURNAL_MAX: usize = 100_000;

/// Why a request failed.
#[derive(Debug)]
pub enum Fail {
    /// As on any disk.
    No(Errno),
    /// The host did not do what we need: this says nothing about the node.
    Host(io::Error),
}

impl From<io::Error> for Fail {
    fn from(error: io::Error) -> Fail {
        Fail::Host(error)
    }
}

/// What a request returns.
pub type Outcome<T> = Result<T, Fail>;

/// What a new inode is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link to this.
    Link(PathBuf),
    /// A socket, a pipe or a device.
    Special(FileType, u32),
}

/// Attributes that are journaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Permissions.
    pub mode: u32,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

#[derive(Debug)]
struct Inode {
    kind: Kind,
    owned: Owned,
    mtime: SystemTime,
    names: u32,
    opens: u32,
    content: Option<Content>,
    entries: BTreeMap<OsString, u64>,
}

/// One change of the journal, with what undoes it.
#[derive(Debug)]
enum Change {
    Entry {
        folder: u64,
        name: OsString,
        old: Option<u64>,
        new: Option<u64>,
    },
    Owned {
        ino: u64,
        old: Owned,
    },
    /// The data of this file goes to the disk with the change.
    Flush {
        ino: u64,
    },
}

/// What a power cut took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Bytes that were written and not synced.
    pub bytes: u64,
    /// Files that had such bytes.
    pub files: u64,
    /// Changes of names and attributes.
    pub names: u64,
}

/// The whole disk.
#[derive(Debug)]
pub struct Tree {
    folder: PathBuf,
    inodes: HashMap<u64, Inode>,
    next: u64,
    journal: Vec<Vec<Change>>, // a rename is one item
    fresh: HashSet<u64>,       // created since the last commit
    nameless: HashSet<u64>,    // to be removed once nothing brings them back
    held_bytes: u64,
    early: u64,
}

impl Tree {
    /// An empty disk, whose objects lie in `folder`.
    pub fn new(folder: PathBuf) -> Tree {
        let owned = Owned {
            mode: 0o755,
            uid: 0,
            gid: 0,
        };
        let mut inodes = HashMap::new();
        inodes.insert(ROOT, Inode::new(Kind::Folder, owned, None));
        Tree {
            folder,
            inodes,
            next: ROOT + 1,
            journal: Vec::new(),
            fresh: HashSet::new(),
            nameless: HashSet::new(),
            held_bytes: 0,
            early: 0,
        }
    }

    fn inode(&self, ino: u64) -> Outcome<&Inode> {
        self.inodes.get(&ino).ok_or(Fail::No(Errno::ENOENT))
    }

    fn inode_mut(&mut self, ino: u64) -> Outcome<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(Fail::No(Errno::ENOENT))
    }

    fn content(&mut self, ino: u64) -> Outcome<&mut Content> {
        let inode = self.inode_mut(ino)?;
        inode.content.as_mut().ok_or(Fail::No(Errno::EINVAL))
    }

    // --- looking ------------------------------------------------------------------------------

    /// The inode of a name.
    pub fn find(&self, folder: u64, name: &OsStr) -> Outcome<u64> {
        let found = self.inode(folder)?.entries.get(name).copied();
        found.ok_or(Fail::No(Errno::ENOENT))
    }

    /// Its attributes.
    pub fn attributes(&self, ino: u64) -> Outcome<FileAttr> {
        let inode = self.inode(ino)?;
        let (size, blocks) = match (&inode.content, &inode.kind) {
            (Some(content), _) => (content.size(), content.blocks()),
            (None, Kind::Link(target)) => (target.as_os_str().len() as u64, 0),
            _ => (0, 0),
        };
        Ok(FileAttr {
            ino: INodeNo(ino),
            size,
            blocks,
            atime: inode.mtime,
            mtime: inode.mtime,
            ctime: inode.mtime,
            crtime: inode.mtime,
            kind: inode.kind.file_type(),
            perm: inode.owned.mode as u16,
            nlink: if matches!(inode.kind, Kind::Folder) {
                2
            } else {
                inode.names
            },
            uid: inode.owned.uid,
            gid: inode.owned.gid,
            rdev: if let Kind::Special(_, rdev) = inode.kind {
                rdev
            } else {
                0
            },
            blksize: BLOCK as u32,
            flags: 0,
        })
    }

    /// What is in a folder.
    pub fn list(&self, folder: u64) -> Outcome<Vec<(u64, FileType, OsString)>> {
        let dots = [".", ".."].map(|name| (folder, FileType::Directory, OsString::from(name)));
        let entries = self
            .inode(folder)?
            .entries
            .iter()
            .filter_map(|(name, ino)| {
                let kind = self.inodes.get(ino)?.kind.file_type();
                Some((*ino, kind, name.clone()))
            });
        Ok(dots.into_iter().chain(entries).collect())
    }

    /// Where a symbolic link leads.
    pub fn target(&self, ino: u64) -> Outcome<PathBuf> {
        match &self.inode(ino)?.kind {
            Kind::Link(target) => Ok(target.clone()),
            _ => Err(Fail::No(Errno::EINVAL)),
        }
    }

    /// All regular files.
    pub fn files(&self) -> Vec<u64> {
        let files = self
            .inodes
            .iter()
            .filter(|(_, inode)| inode.content.is_some());
        files.map(|(ino, _)| *ino).collect()
    }

    /// How often a limit made something durable that nobody had synced.
    pub fn early(&self) -> u64 {
        self.early
    }

    // --- names --------------------------------------------------------------------------------

    fn set(&mut self, folder: u64, name: &OsStr, new: Option<u64>) -> Outcome<Change> {
        let entries = &mut self.inode_mut(folder)?.entries;
        let old = match new {
            Some(ino) => entries.insert(name.to_owned(), ino),
            None => entries.remove(name),
        };
        self.inode_mut(folder)?.mtime = SystemTime::now();
        self.count(old, new);
        Ok(Change::Entry {
            folder,
            name: name.to_owned(),
            old,
            new,
        })
    }

    /// A name has moved from one inode to another.
    fn count(&mut self, from: Option<u64>, to: Option<u64>) {
        if let Some(inode) = from.and_then(|ino| self.inodes.get_mut(&ino)) {
            inode.names -= 1;
            if inode.names == 0 {
                self.nameless.extend(from);
            }
        }
        if let Some(inode) = to.and_then(|ino| self.inodes.get_mut(&ino)) {
            inode.names += 1;
        }
    }

    fn log(&mut self, changes: Vec<Change>) -> Outcome<()> {
        self.journal.push(changes);
        if self.journal.len() > JOURNAL_MAX {
            self.early += 1;
            self.commit()?;
        }
        Ok(())
    }

    /// Make something new under a name that is free.
    pub fn make(&mut self, folder: u64, name: &OsStr, kind: Kind, owned: Owned) -> Outcome<u64> {
        if self.inode(folder)?.entries.contains_key(name) {
            return Err(Fail::No(Errno::EEXIST));
        }
        let ino = self.next;
        let content = match kind {
            Kind::File => Some(Content::create(self.folder.join(ino.to_string()))?),
            _ => None,
        };
        self.next += 1;
        self.inodes.insert(ino, Inode::new(kind, owned, content));
        self.fresh.insert(ino);
        let change = self.set(folder, name, Some(ino))?;
        self.log(vec![change])?;
        Ok(ino)
    }

    /// Another name for a file.
    pub fn link(&mut self, ino: u64, folder: u64, name: &OsStr) -> Outcome<()> {
        if self.inode(folder)?.entries.contains_key(name) {
            return Err(Fail::No(Errno::EEXIST));
        }
        self.inode(ino)?;
        let change = self.set(folder, name, Some(ino))?;
        self.log(vec![change])
    }

    /// Take a name away; of a folder only where it is empty.
    pub fn remove(&mut self, folder: u64, name: &OsStr) -> Outcome<()> {
        let ino = self.find(folder, name)?;
        self.refuse_full(ino)?;
        let change = self.set(folder, name, None)?;
        self.log(vec![change])
    }

    fn refuse_full(&self, ino: u64) -> Outcome<()> {
        let full = !self.inode(ino)?.entries.is_empty();
        if full {
            Err(Fail::No(Errno::ENOTEMPTY))
        } else {
            Ok(())
        }
    }

    /// Move a name, over what has the new one.
    pub fn rename(
        &mut self,
        (folder, name): (u64, &OsStr),
        (to_folder, to_name): (u64, &OsStr),
        replaces: bool,
    ) -> Outcome<()> {
        let ino = self.find(folder, name)?;
        let mut changes = Vec::new();
        if let Ok(other) = self.find(to_folder, to_name) {
            if !replaces {
                return Err(Fail::No(Errno::EEXIST));
            }
            if other == ino {
                return Ok(());
            }
            self.refuse_full(other)?;
            changes.push(Change::Flush { ino });
        }
        changes.push(self.set(folder, name, None)?);
        changes.push(self.set(to_folder, to_name, Some(ino))?);
        self.log(changes)
    }

    /// Change mode and owner.
    pub fn own(&mut self, ino: u64, change: impl FnOnce(&mut Owned)) -> Outcome<()> {
        let inode = self.inode_mut(ino)?;
        let old = inode.owned;
        change(&mut inode.owned);
        if old == inode.owned {
            return Ok(());
        }
        self.log(vec![Change::Owned { ino, old }])
    }

    /// Set its time.
    pub fn touch(&mut self, ino: u64, mtime: SystemTime) -> Outcome<()> {
        self.inode_mut(ino)?.mtime = mtime;
        Ok(())
    }

    // --- contents -----------------------------------------------------------------------------

    /// Somebody opens it.
    pub fn open(&mut self, ino: u64) -> Outcome<()> {
        self.inode_mut(ino)?.opens += 1;
        Ok(())
    }

    /// Somebody closes it.
    pub fn close(&mut self, ino: u64) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.opens = inode.opens.saturating_sub(1);
        }
        self.rest_unless_open(ino);
    }

    fn rest_unless_open(&mut self, ino: u64) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            if let (0, Some(content)) = (inode.opens, inode.content.as_mut()) {
                content.rest();
            }
        }
    }

    /// Up to `size` bytes from `offset`.
    pub fn read(&mut self, ino: u64, offset: u64, size: usize) -> Outcome<Vec<u8>> {
        Ok(self.content(ino)?.read(offset, size)?)
    }

    /// Whether a write up to `end` needs room.
    pub fn grows(&mut self, ino: u64, end: u64) -> bool {
        self.content(ino).is_ok_and(|content| end > content.size())
    }

    fn change(
        &mut self,
        ino: u64,
        work: impl FnOnce(&mut Content) -> io::Result<()>,
    ) -> Outcome<()> {
        let content = self.content(ino)?;
        let before = content.held_bytes();
        let done = work(content);
        let grown = content.held_bytes() - before;
        self.rest_unless_open(ino);
        self.held_bytes += grown;
        self.touch(ino, SystemTime::now())?;
        done?;
        if self.held_bytes > HELD_BYTES_MAX {
            self.early += 1;
            self.write_back(ino)?;
        }
        Ok(())
    }

    /// Write, not durably.
    pub fn write(&mut self, ino: u64, offset: u64, data: &[u8]) -> Outcome<()> {
        self.change(ino, |content| content.write(offset, data))
    }

    /// Change the size, not durably.
    pub fn resize(&mut self, ino: u64, size: u64) -> Outcome<()> {
        self.change(ino, |content| content.resize(size))
    }

    // --- what is durable ----------------------------------------------------------------------

    fn write_back(&mut self, ino: u64) -> Outcome<()> {
        if let Ok(content) = self.content(ino) {
            let held = content.held_bytes();
            content.sync();
            self.held_bytes -= held;
        }
        Ok(())
    }

    /// fsync or fdatasync of a file, fsync of a folder.
    pub fn sync(&mut self, ino: u64, data_only: bool) -> Outcome<()> {
        let fresh = self.fresh.contains(&ino);
        let inode = self.inode(ino)?;
        let resized = inode
            .content
            .as_ref()
            .is_some_and(Content::size_is_unsynced);
        self.write_back(ino)?;
        if data_only && !fresh && !resized {
            return Ok(());
        }
        self.commit()
    }

    /// Make the whole journal durable.
    fn commit(&mut self) -> Outcome<()> {
        self.flush()?;
        self.sweep()
    }

    fn flush(&mut self) -> Outcome<()> {
        for change in std::mem::take(&mut self.journal).into_iter().flatten() {
            if let Change::Flush { ino } = change {
                self.write_back(ino)?;
            }
        }
        self.fresh.clear();
        Ok(())
    }

    /// Remove what has no name and is not open, once no journal can bring it back.
    fn sweep(&mut self) -> Outcome<()> {
        for ino in std::mem::take(&mut self.nameless) {
            match self.inodes.get(&ino) {
                Some(inode) if inode.names == 0 && inode.opens == 0 => {
                    let inode = self.inodes.remove(&ino).expect("looked up above");
                    if let Some(content) = inode.content {
                        self.held_bytes -= content.held_bytes();
                        content.remove()?;
                    }
                }
                Some(inode) if inode.names == 0 => {
                    self.nameless.insert(ino);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// All is durable, as after sync(2), or once the kernel has written it back.
    pub fn sync_all(&mut self) -> Outcome<()> {
        for ino in self.files() {
            self.write_back(ino)?;
        }
        self.commit()
    }

    /// The power is cut: what was not synced is lost, or with `torn` an arbitrary part of it.
    ///
    /// Every other time that is all of it, drawn for the whole disk: a program that never syncs then
    /// comes back as it once was, and forgets in silence; parts mostly make it fall over.
    ///
    /// The node must be dead; what it had open is closed, or will be in a moment.
    pub fn cut(&mut self, mut torn: Option<Draws>) -> Outcome<Lost> {
        torn = torn.and_then(|mut draws| draws.coin().then_some(draws));
        let kept = match torn.as_mut() {
            Some(draws) => draws.below(self.journal.len() as u64 + 1) as usize,
            None => 0,
        };
        let mut lost = Lost::default();
        for change in self.journal.split_off(kept).into_iter().rev() {
            lost.names += 1;
            change
                .into_iter()
                .rev()
                .for_each(|change| self.undo(change));
        }
        self.flush()?;
        let mut files = self.files();
        files.sort_unstable(); // the draws must not depend on a hash
        for ino in files {
            let content = self.content(ino)?;
            let bytes = content.cut(torn.as_mut())?;
            lost.bytes += bytes;
            lost.files += u64::from(bytes > 0);
            self.touch(ino, SystemTime::now())?;
        }
        self.held_bytes = 0;
        self.sweep()?;
        Ok(lost)
    }

    fn undo(&mut self, change: Change) {
        match change {
            Change::Entry {
                folder,
                name,
                old,
                new,
            } => {
                if let Some(inode) = self.inodes.get_mut(&folder) {
                    match old {
                        Some(ino) => inode.entries.insert(name, ino),
                        None => inode.entries.remove(&name),
                    };
                }
                self.count(new, old);
            }
            Change::Owned { ino, old } => {
                if let Some(inode) = self.inodes.get_mut(&ino) {
                    inode.owned = old;
                }
            }
            Change::Flush { .. } => {}
        }
    }

    /// Empty it; mode and owner of the root stay.
    pub fn wipe(&mut self) -> Outcome<()> {
        let root = self.inode(ROOT)?.owned;
        for (_, inode) in self.inodes.drain() {
            if let Some(content) = inode.content {
                content.remove()?;
            }
        }
        self.inodes
            .insert(ROOT, Inode::new(Kind::Folder, root, None));
        self.journal.clear();
        self.fresh.clear();
        self.nameless.clear();
        self.held_bytes = 0;
        Ok(())
    }
}

impl Inode {
    fn new(kind: Kind, owned: Owned, content: Option<Content>) -> Inode {
        Inode {
            kind,
            owned,
            mtime: SystemTime::now(),
            names: 0,
            opens: 0,
            content,
            entries: BTreeMap::new(),
        }
    }
}

impl Kind {
    fn file_type(&self) -> FileType {
        match self {
            Kind::File => FileType::RegularFile,
            Kind::Folder => FileType::Directory,
            Kind::Link(_) => FileType::Symlink,
            Kind::Special(kind, _) => *kind,
        }
    }
}
