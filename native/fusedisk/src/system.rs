//! System calls and commands that Rust's standard library does not offer.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// Return the size and free space of the host's file system that contains `folder`.
#[allow(unsafe_code)] // statvfs(3) fills in a structure of plain numbers
pub fn room(folder: &Path) -> io::Result<libc::statvfs> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    if unsafe { libc::statvfs(path.as_ptr(), &mut found) } == 0 {
        Ok(found)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Raise the limit of open files to its maximum, since each file that a node opens may be opened
/// here as well.
#[allow(unsafe_code)] // getrlimit(2) and setrlimit(2) take a structure of two numbers
pub fn raise_files_max() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Unmount the file system, even if processes still use it.
pub fn detach(mount: &Path) {
    let umount = Command::new("umount")
        .arg("--lazy")
        .arg("--")
        .arg(mount)
        .status();
    if !umount.is_ok_and(|status| status.success()) {
        let _ = Command::new("fusermount3")
            .arg("-u")
            .arg("-z")
            .arg("--")
            .arg(mount)
            .status();
    }
}
