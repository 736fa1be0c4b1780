//! A FUSE file system that loses unsynced data on command, as a disk does in a power cut. The node
//! that uses the file system need not know of the harness.
//!
//! `harness-fusedisk MOUNT FOLDER SOURCE SEED WRITE_BACK_MS` mounts an empty file system on MOUNT,
//! stores its data in FOLDER, and prints `{"ready":true}`. Every WRITE_BACK_MS (0: never) it makes
//! all data durable, as a kernel writes back dirty pages. It reads one command per line from
//! standard input, and answers each with one line of JSON. At the end of the input it unmounts and
//! exits. The input also ends if the harness dies.
//!
//! | command                   | does                                                                       |
//! |---------------------------|----------------------------------------------------------------------------|
//! | `set ERROR FULL DELAY_US` | sets the faults; answers how many requests faults hit since the last `set` |
//! | `cut TORN SEED`           | cuts the power; answers how much unsynced data was at stake                |
//! | `release`                 | ends the delays of waiting requests                                        |
//! | `sync`                    | makes all data durable                                                     |
//! | `wipe`                    | removes all files and folders                                              |

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

/// Invalidate the kernel's cached pages of `files`, whose contents have changed.
fn forget(notifier: &Notifier, files: Vec<u64>) {
    for ino in files {
        // An error means that the kernel does not know the file, so it has cached nothing. No lock
        // is held here, because the kernel may request pages during the call.
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
    config.acl = SessionACL::All; // the node may run as any user
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
            let _ = shared.tree().sync_all().map_err(host); // `host` has reported the error
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
            break; // the harness no longer reads the answers
        }
    }
    system::detach(mount);
    // Do not wait for the session: a process that still uses the mount could block the exit.
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
