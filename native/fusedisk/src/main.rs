//! A disk for a node that knows nothing of us: what it does not sync is lost when we say so.
//!
//! `harness-fusedisk MOUNT FOLDER SOURCE SEED WRITE_BACK_MS` mounts an empty file system on MOUNT,
//! whose bytes lie in FOLDER, and says `{"ready":true}`. Every WRITE_BACK_MS (0: never) all becomes
//! durable, as a kernel writes back what nobody has synced. Commands come as lines on standard input, and each is
//! answered by a line of JSON. The end of the input ends it, and takes the mount away: that is what
//! the death of the harness looks like, however it died.
//!
//! | command                    | does                                                             |
//! |----------------------------|------------------------------------------------------------------|
//! | `set ERROR FULL DELAY_US`  | sets how bad it is; answers what was felt since the last time    |
//! | `cut TORN SEED`            | loses what was not synced; answers what that was                 |
//! | `release`                  | lets late requests go on now                                     |
//! | `sync`                     | makes all durable                                                |
//! | `wipe`                     | empties it                                                       |

mod content;
mod disk;
mod draws;
mod system;
mod tree;
mod trouble;

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Config, INodeNo, MountOption, Notifier, Session, SessionACL};

use crate::disk::{report_host, Disk, Shared};
use crate::draws::Draws;
use crate::tree::{Fail, Tree};
use crate::trouble::{Quality, Trouble};

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}

fn host(fail: Fail) -> String {
    match fail {
        Fail::No(errno) => format!("{errno:?}"),
        Fail::Host(error) => {
            report_host(&error);
            error.to_string()
        }
    }
}

/// Forget what the kernel has cached of files that are not what they were.
fn forget(notifier: &Notifier, files: Vec<u64>) {
    for ino in files {
        // What it does not know it has not cached. No lock is held here: it may ask us for pages.
        let _ = notifier.inval_inode(INodeNo(ino), 0, 0);
    }
}

fn obey(line: &str, shared: &Shared, notifier: &Notifier) -> Result<String, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["set", error, full, delay_us] => {
            shared.trouble.set(Quality {
                error: number(error)?,
                full: full == "1",
                delay: Duration::from_micros(number(delay_us)?),
            });
            let felt = shared.trouble.touched();
            let early = shared.tree().early();
            Ok(format!(
                "{{\"eio\":{},\"enospc\":{},\"slow\":{},\"early\":{early}}}",
                felt.eio, felt.enospc, felt.slow
            ))
        }
        ["cut", torn, seed] => {
            let draws = Draws::new(number(seed)?);
            let torn = (torn == "1").then_some(draws);
            let files = shared.tree().files();
            let lost = shared.tree().cut(torn).map_err(host)?;
            forget(notifier, files);
            Ok(format!(
                "{{\"bytes\":{},\"files\":{},\"names\":{}}}",
                lost.bytes, lost.files, lost.names
            ))
        }
        ["release"] => {
            shared.trouble.release();
            Ok("{}".to_owned())
        }
        ["sync"] => {
            shared.tree().sync_all().map_err(host)?;
            Ok("{}".to_owned())
        }
        ["wipe"] => {
            let files = shared.tree().files();
            shared.tree().wipe().map_err(host)?;
            forget(notifier, files);
            Ok("{}".to_owned())
        }
        _ => Err(format!("no command: {line}")),
    }
}

fn serve(
    mount: &Path,
    folder: PathBuf,
    source: &str,
    seed: u64,
    write_back: Duration,
) -> io::Result<()> {
    let shared = Arc::new(Shared::new(Tree::new(folder.clone()), Trouble::new(seed)));
    let mut config = Config::default();
    config.acl = SessionACL::All; // whoever the node runs as
    config.mount_options = vec![
        MountOption::FSName(source.to_owned()),
        MountOption::Subtype("harness".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
    ];
    let session = Session::new(Disk::new(Arc::clone(&shared), &folder), mount, &config)?;
    let session = session.spawn()?;
    if !write_back.is_zero() {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || loop {
            std::thread::sleep(write_back);
            let _ = shared.tree().sync_all().map_err(host); // said
        });
    }
    let notifier = session.notifier();
    let mut output = io::stdout();
    writeln!(output, "{{\"ready\":true}}")?;
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let answer = obey(&line, &shared, &notifier).unwrap_or_else(|error| {
            let error = error.replace(['"', '\\'], "'");
            format!("{{\"error\":\"{error}\"}}")
        });
        if writeln!(output, "{answer}").is_err() {
            break; // nobody listens any more
        }
    }
    system::detach(mount);
    // Without waiting for the session: somebody may still use it, and must not hold us up.
    std::process::exit(0)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mount, folder, source, seed, write_back_ms] = &words[..] else {
        eprintln!("usage: harness-fusedisk MOUNT FOLDER SOURCE SEED WRITE_BACK_MS");
        return ExitCode::from(2);
    };
    system::raise_files_max();
    let mount = PathBuf::from(mount);
    let (Ok(seed), Ok(write_back_ms)) = (seed.parse(), write_back_ms.parse()) else {
        eprintln!("{seed} and {write_back_ms} must be numbers");
        return ExitCode::from(2);
    };
    let write_back = Duration::from_millis(write_back_ms);
    match serve(&mount, PathBuf::from(folder), source, seed, write_back) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot mount on {}: {error}", mount.display());
            ExitCode::FAILURE
        }
    }
}
