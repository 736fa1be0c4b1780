//! Answers the kernel's requests from the tree, subject to the disk's current faults.
//!
//! The kernel caches no names and no attributes, and caches pages of a file only while the file is
//! open. `direct_io` is off, so that programs can map files into memory.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::tree::{Fail, Kind, Outcome, Owned, Tree};
use crate::trouble::{Sort, Trouble};

const TTL: Duration = Duration::ZERO;
const ALIVE: Generation = Generation(0); // inode numbers are never reused
const MODE: u32 = 0o7777;

type Listing = Vec<(u64, FileType, OsString)>;

/// The state that the kernel's requests and the harness's commands share.
#[derive(Debug)]
pub struct Shared {
    tree: Mutex<Tree>,
    /// The current faults.
    pub trouble: Trouble,
}

impl Shared {
    /// Combine a tree with the faults of its disk.
    pub fn new(tree: Tree, trouble: Trouble) -> Shared {
        Shared {
            tree: Mutex::new(tree),
            trouble,
        }
    }

    /// Lock the tree, even after a panic in another thread, which has already been reported.
    pub fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn carry_out<T>(
        &self,
        sort: Option<Sort>,
        work: impl FnOnce(&mut Tree) -> Outcome<T>,
    ) -> Result<T, Errno> {
        if let Some(sort) = sort {
            self.trouble.strike(sort)?;
        }
        match work(&mut self.tree()) {
            Ok(found) => Ok(found),
            Err(Fail::No(errno)) => Err(errno),
            Err(Fail::Host(error)) => {
                report_host(&error);
                Err(Errno::EIO)
            }
        }
    }
}

/// Report an error of the host to the harness, since the node is not to blame for it.
pub fn report_host(error: &std::io::Error) {
    let text = error.to_string().replace(['"', '\\'], "'");
    let _ = writeln!(std::io::stdout(), "{{\"host\":\"{text}\"}}"); // the harness may be gone
}

/// The file system that the kernel calls.
pub struct Disk {
    shared: Arc<Shared>,
    folder: std::path::PathBuf,
    listings: Mutex<HashMap<u64, Listing>>,
    handles: AtomicU64,
}

impl Disk {
    /// Create the file system; its data are in `folder` on the host.
    pub fn new(shared: Arc<Shared>, folder: &Path) -> Disk {
        Disk {
            shared,
            folder: folder.to_owned(),
            listings: Mutex::new(HashMap::new()),
            handles: AtomicU64::new(1),
        }
    }

    /// Carry out a request and answer it. A delayed request gets a thread of its own.
    fn act<T, R: Send + 'static>(
        &self,
        sort: Sort,
        reply: R,
        work: impl FnOnce(&mut Tree) -> Outcome<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        if !shared.trouble.is_slow(sort) {
            answer(reply, shared.carry_out(Some(sort), work));
            return;
        }
        std::thread::spawn(move || {
            shared.trouble.wait();
            answer(reply, shared.carry_out(Some(sort), work));
        });
    }

    fn listings(&self) -> MutexGuard<'_, HashMap<u64, Listing>> {
        self.listings
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn make(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        (mode, umask): (u32, u32),
        kind: Kind,
        reply: ReplyEntry,
    ) {
        let (name, owned) = (name.to_owned(), owned(request, mode, umask));
        self.act(
            Sort::Make,
            reply,
            move |tree| {
                let ino = tree.make(parent.0, &name, kind, owned)?;
                tree.attributes(ino)
            },
            entry,
        );
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.act(
            Sort::Sync,
            reply,
            move |tree| tree.remove(parent.0, &name),
            empty,
        );
    }
}

fn owned(request: &Request, mode: u32, umask: u32) -> Owned {
    Owned {
        mode: mode & !umask & MODE,
        uid: request.uid(),
        gid: request.gid(),
    }
}

fn entry(reply: ReplyEntry, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attributes) => reply.entry(&TTL, &attributes, ALIVE),
        Err(errno) => reply.error(errno),
    }
}

fn attributes(reply: ReplyAttr, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attributes) => reply.attr(&TTL, &attributes),
        Err(errno) => reply.error(errno),
    }
}

fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let find = |tree: &mut Tree| {
            tree.find(parent.0, name)
                .and_then(|ino| tree.attributes(ino))
        };
        entry(reply, self.shared.carry_out(None, find));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attributes(
            reply,
            self.shared.carry_out(None, |tree| tree.attributes(ino.0)),
        );
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let work = move |tree: &mut Tree| {
            if let Some(size) = size {
                tree.resize(ino.0, size)?;
            }
            tree.own(ino.0, |owned| {
                owned.mode = mode.map_or(owned.mode, |mode| mode & MODE);
                owned.uid = uid.unwrap_or(owned.uid);
                owned.gid = gid.unwrap_or(owned.gid);
            })?;
            if let Some(time) = mtime {
                let now = SystemTime::now();
                let time = if let TimeOrNow::SpecificTime(time) = time {
                    time
                } else {
                    now
                };
                tree.touch(ino.0, time)?;
            }
            tree.attributes(ino.0)
        };
        let grows = size.is_some_and(|size| self.shared.tree().grows(ino.0, size));
        let sort = if grows { Sort::Make } else { Sort::Sync };
        self.act(sort, reply, work, attributes);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        use std::os::unix::ffi::OsStrExt;
        match self.shared.carry_out(None, |tree| tree.target(ino.0)) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let kind = match mode & libc::S_IFMT {
            libc::S_IFREG | 0 => Kind::File,
            libc::S_IFIFO => Kind::Special(FileType::NamedPipe, rdev),
            libc::S_IFSOCK => Kind::Special(FileType::Socket, rdev),
            _ => return reply.error(Errno::EPERM), // the mount allows no devices
        };
        self.make(request, (parent, name), (mode, umask), kind, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.make(request, (parent, name), (mode, umask), Kind::Folder, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let kind = Kind::Link(target.to_owned());
        self.make(request, (parent, name), (0o777, 0), kind, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let (name, newname) = (name.to_owned(), newname.to_owned());
        let work = move |tree: &mut Tree| {
            tree.rename((parent.0, &name), (newparent.0, &newname), flags.is_empty())
        };
        self.act(Sort::Sync, reply, work, empty);
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let newname = newname.to_owned();
        let work = move |tree: &mut Tree| {
            tree.link(ino.0, newparent.0, &newname)?;
            tree.attributes(ino.0)
        };
        self.act(Sort::Make, reply, work, entry);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.act(
            Sort::Read,
            reply,
            move |tree| tree.open(ino.0),
            |reply, done| match done {
                Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
                Err(errno) => reply.error(errno),
            },
        );
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let (name, owned) = (name.to_owned(), owned(request, mode, umask));
        let work = move |tree: &mut Tree| {
            let ino = tree.make(parent.0, &name, Kind::File, owned)?;
            tree.open(ino)?;
            tree.attributes(ino)
        };
        self.act(Sort::Make, reply, work, |reply, found| match found {
            Ok(found) => reply.created(&TTL, &found, ALIVE, FileHandle(0), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let work = move |tree: &mut Tree| tree.read(ino.0, offset, size as usize);
        self.act(Sort::Read, reply, work, |reply, found| match found {
            Ok(data) => reply.data(&data),
            Err(errno) => reply.error(errno),
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let grows = self.shared.tree().grows(ino.0, offset + data.len() as u64);
        let sort = Some(Sort::Write { grows });
        match self
            .shared
            .carry_out(sort, |tree| tree.write(ino.0, offset, data))
        {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok(); // closing a file makes nothing durable
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.shared.tree().close(ino.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.act(
            Sort::Sync,
            reply,
            move |tree| tree.sync(ino.0, data_only),
            empty,
        );
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.act(
            Sort::Sync,
            reply,
            move |tree| tree.sync(ino.0, false),
            empty,
        );
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.shared.carry_out(None, |tree| tree.list(ino.0)) {
            Ok(listing) => {
                let handle = self.handles.fetch_add(1, Ordering::Relaxed);
                self.listings().insert(handle, listing);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if let Some(listing) = self.listings().get(&fh.0) {
            for (index, (ino, kind, name)) in listing.iter().enumerate().skip(offset as usize) {
                if reply.add(INodeNo(*ino), index as u64 + 1, *kind, name) {
                    break;
                }
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings().remove(&fh.0);
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & !libc::FALLOC_FL_KEEP_SIZE != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let end = offset + length;
        let work = move |tree: &mut Tree| match mode {
            0 if tree.grows(ino.0, end) => tree.resize(ino.0, end),
            _ => Ok(()),
        };
        self.act(Sort::Make, reply, work, empty);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match crate::system::room(&self.folder) {
            Ok(found) => reply.statfs(
                found.f_blocks,
                found.f_bfree,
                found.f_bavail,
                found.f_files,
                found.f_ffree,
                found.f_bsize as u32,
                found.f_namemax as u32,
                found.f_frsize as u32,
            ),
            Err(error) => {
                report_host(&error);
                reply.error(Errno::EIO);
            }
        }
    }
}
