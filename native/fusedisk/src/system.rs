//! What std does not ask the system.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// How much room the host's disk has.
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

/// Have as many files open as the system lets us: a node may open as many as it is allowed itself.
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

/// Take the mount away, even while somebody uses it.
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
