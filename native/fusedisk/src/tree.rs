//! The names, attributes and contents of all files, and which of them survive a power cut.
//!
//! The rules are those of ext4 (`data=ordered`). All changes of names and attributes go into one
//! journal, in order. An fsync of a file or folder makes the whole journal durable, and the data of
//! that file. An fdatasync does the same if the file is new or its size has changed; otherwise it
//! only makes the data durable. If a rename replaces another file, the data of the renamed file
//! becomes durable together with the rename, as ext4 does for programs that forget to sync
//! (`auto_da_alloc`). A truncation becomes durable with the file's data. The process that mounts
//! the file system decides when it writes data back (`sync_all`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, INodeNo};

use crate::content::{Content, BLOCK};
use crate::draws::Draws;

/// The inode of the root folder.
pub const ROOT: u64 = 1;
/// The maximum size of old blocks in memory. Above it, a file is made durable early.
const HELD_BYTES_MAX: u64 = 256 << 20;
/// The maximum number of changes in the journal. Above it, the journal is committed early.
const JOURNAL_MAX: usize = 100_000;

/// Why a request failed.
#[derive(Debug)]
pub enum Fail {
    /// An error that any file system may return.
    No(Errno),
    /// An error of the host, for which the node is not to blame.
    Host(io::Error),
}

impl From<io::Error> for Fail {
    fn from(error: io::Error) -> Fail {
        Fail::Host(error)
    }
}

/// The result of a request.
pub type Outcome<T> = Result<T, Fail>;

/// The kind of an inode.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link with its target.
    Link(PathBuf),
    /// A socket, a pipe or a device.
    Special(FileType, u32),
}

/// The attributes that are journaled.
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

/// One change in the journal, with the old value to restore.
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
    /// The data of this file becomes durable together with the change.
    Flush {
        ino: u64,
    },
}

/// The unsynced data and changes that a power cut could destroy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Bytes written since the last sync, some of which may survive.
    pub bytes: u64,
    /// Files with such bytes.
    pub files: u64,
    /// Changes of names and attributes that were undone.
    pub names: u64,
}

/// The file tree of one disk.
#[derive(Debug)]
pub struct Tree {
    folder: PathBuf,
    inodes: HashMap<u64, Inode>,
    next: u64,
    journal: Vec<Vec<Change>>, // one item per request
    fresh: HashSet<u64>,       // inodes created since the last commit
    nameless: HashSet<u64>,    // inodes without a name, which an undo may still restore
    held_bytes: u64,
    early: u64,
}

impl Tree {
    /// Create an empty disk whose files are stored in `folder`.
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

    // --- reading ------------------------------------------------------------------------------

    /// Return the inode of a name in a folder.
    pub fn find(&self, folder: u64, name: &OsStr) -> Outcome<u64> {
        let found = self.inode(folder)?.entries.get(name).copied();
        found.ok_or(Fail::No(Errno::ENOENT))
    }

    /// Return the attributes of an inode.
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

    /// List a folder, including `.` and `..`.
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

    /// Return the target of a symbolic link.
    pub fn target(&self, ino: u64) -> Outcome<PathBuf> {
        match &self.inode(ino)?.kind {
            Kind::Link(target) => Ok(target.clone()),
            _ => Err(Fail::No(Errno::EINVAL)),
        }
    }

    /// Return the inodes of all regular files.
    pub fn files(&self) -> Vec<u64> {
        let files = self
            .inodes
            .iter()
            .filter(|(_, inode)| inode.content.is_some());
        files.map(|(ino, _)| *ino).collect()
    }

    /// The number of times that a memory limit made data durable before any sync.
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

    /// Update the name counts: a name of inode `from` now belongs to inode `to`.
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

    /// Create a file, folder, link or device under a name that must be free.
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

    /// Give a file another name (a hard link).
    pub fn link(&mut self, ino: u64, folder: u64, name: &OsStr) -> Outcome<()> {
        if self.inode(folder)?.entries.contains_key(name) {
            return Err(Fail::No(Errno::EEXIST));
        }
        self.inode(ino)?;
        let change = self.set(folder, name, Some(ino))?;
        self.log(vec![change])
    }

    /// Remove a name. A folder must be empty.
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

    /// Rename. With `replaces`, the new name may already exist.
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

    /// Change mode or owner.
    pub fn own(&mut self, ino: u64, change: impl FnOnce(&mut Owned)) -> Outcome<()> {
        let inode = self.inode_mut(ino)?;
        let old = inode.owned;
        change(&mut inode.owned);
        if old == inode.owned {
            return Ok(());
        }
        self.log(vec![Change::Owned { ino, old }])
    }

    /// Set the modification time.
    pub fn touch(&mut self, ino: u64, mtime: SystemTime) -> Outcome<()> {
        self.inode_mut(ino)?.mtime = mtime;
        Ok(())
    }

    // --- contents -----------------------------------------------------------------------------

    /// Count one more open handle of a file.
    pub fn open(&mut self, ino: u64) -> Outcome<()> {
        self.inode_mut(ino)?.opens += 1;
        Ok(())
    }

    /// Count one open handle less.
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

    /// Read up to `size` bytes from `offset` on.
    pub fn read(&mut self, ino: u64, offset: u64, size: usize) -> Outcome<Vec<u8>> {
        Ok(self.content(ino)?.read(offset, size)?)
    }

    /// Whether a write that ends at `end` enlarges the file.
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

    /// Write data that is not durable before the next sync.
    pub fn write(&mut self, ino: u64, offset: u64, data: &[u8]) -> Outcome<()> {
        self.change(ino, |content| content.write(offset, data))
    }

    /// Change the size, which is not durable before the next sync.
    pub fn resize(&mut self, ino: u64, size: u64) -> Outcome<()> {
        self.change(ino, |content| content.resize(size))
    }

    // --- durability ---------------------------------------------------------------------------

    fn write_back(&mut self, ino: u64) -> Outcome<()> {
        if let Ok(content) = self.content(ino) {
            let held = content.held_bytes();
            content.sync();
            self.held_bytes -= held;
        }
        Ok(())
    }

    /// Do an fsync, or with `data_only` an fdatasync.
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

    /// After a commit, remove inodes that have no name and are not open. No undo can restore them.
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

    /// Make everything durable, as sync(2) does, or the kernel after some time.
    pub fn sync_all(&mut self) -> Outcome<()> {
        for ino in self.files() {
            self.write_back(ino)?;
        }
        self.commit()
    }

    /// Cut the power: unsynced data are lost. With `torn`, perhaps only a random part is lost.
    ///
    /// Even with `torn`, half of the cuts lose all unsynced data on the disk. Then a program that
    /// never syncs restarts in a consistent old state and silently lacks newer data; a partial loss
    /// mostly makes such a program crash.
    ///
    /// The node must be dead. Its open files are closed, or will be closed in a moment.
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
        files.sort_unstable(); // the random numbers must not depend on the order of a hash map
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

    /// Remove all files and folders. The root keeps its mode and owner.
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
