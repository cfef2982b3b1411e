//! What a capture would carry: for the plan before a move. Only texts are read, within bounds, for what looks like a
//! credential.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use handoff_protocol::document::{ReportEntry, ReportKind};
use rustix::fs::{AtFlags, FileType};
use serde::Serialize;

use crate::beneath;
use crate::capture::session::SessionFiles;
use crate::capture::{CaptureError, Moment, session, uncarried};
use crate::conversation::finding;
use crate::limits::WORKSPACE_ENTRIES;
use crate::report::Report;
use crate::search::{Search, is_searched};
use crate::secret;

/// Smaller files are counted as they look.
const SPARSE_BYTES: i64 = 64 << 20;

/// A session and its workspace in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Survey {
    /// Messages up to the last boundary.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// Steps up to the last boundary.
    pub steps: u64,
    /// Files of the workspace.
    pub files: u64,
    /// Their bytes, holes not counted.
    pub file_bytes: u64,
    /// What stays behind.
    pub excluded: Vec<ReportEntry>,
    /// What looks like a credential and travels: where, and of which kind.
    pub secrets: Vec<ReportEntry>,
}

/// One look at a workspace.
struct Look {
    own: Option<(u64, u64)>,
    survey: Survey,
    excluded: Report,
    secrets: Report,
    search: Search,
}

/// Looks at a session directory and a workspace.
///
/// # Errors
/// Where the session directory could not be captured, or the workspace cannot be listed.
pub async fn survey(state_dir: &Path, workspace_dir: Option<&Path>) -> Result<Survey, CaptureError> {
    let (state_dir, workspace_dir) = (state_dir.to_owned(), workspace_dir.map(Path::to_owned));
    let looking = tokio::task::spawn_blocking(move || look(&state_dir, workspace_dir));
    looking.await.map_err(|_| CaptureError::Ended)?
}

fn look(state_dir: &Path, workspace_dir: Option<PathBuf>) -> Result<Survey, CaptureError> {
    let files = session::read(state_dir, Moment::Draft)?;
    let boundary = &files.boundary;
    let survey = Survey {
        messages: boundary.messages,
        message_bytes: boundary.messages_bytes,
        steps: boundary.step,
        ..Survey::default()
    };
    let own = rustix::fs::stat(state_dir).ok().map(|found| (found.st_dev, found.st_ino));
    let (excluded, search) = (Report::default(), Search::of_survey());
    let mut look = Look { own, survey, excluded, secrets: in_session(&files, &search)?, search };
    if let Some(dir) = workspace_dir {
        let root = beneath::open_root(&dir).map_err(|error| CaptureError::io(b".", error))?;
        look.directory(&root, Vec::new())?;
    }
    let Look { mut survey, excluded, mut secrets, search, .. } = look;
    search.finish(&mut secrets);
    survey.excluded = excluded.finish();
    survey.secrets = secrets.finish();
    Ok(survey)
}

/// What looks like a credential in the session itself. A conversation that is longer than a search may be is not
/// read.
fn in_session(files: &SessionFiles, search: &Search) -> Result<Report, CaptureError> {
    let mut secrets = Report::default();
    secrets.extend(files.findings.iter().cloned());
    if !search.has_room_for(files.boundary.messages_bytes) {
        let why = "the conversation is too long to be looked through for credentials in a plan";
        secrets.add(ReportKind::Degraded, "messages", why);
        return Ok(secrets);
    }
    let mut index = 0;
    session::each_message(files, |message| {
        let at = format!("messages[{index}]");
        index += 1;
        let mut kinds: Vec<_> = secret::scan(message).iter().map(|found| found.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        secrets.extend(kinds.into_iter().map(|kind| finding(&at, kind)));
        Ok(())
    })?;
    Ok(secrets)
}

impl Look {
    /// The walk is as deep as paths may be, which is checked before a level is entered.
    fn directory(&mut self, dir: &OwnedFd, path: Vec<u8>) -> Result<(), CaptureError> {
        for name in beneath::names(dir, WORKSPACE_ENTRIES).map_err(|error| CaptureError::io(&path, error))? {
            let parents = if path.is_empty() { Vec::new() } else { [&path[..], b"/"].concat() };
            let child = [parents, name.clone()].concat();
            let mut exclude =
                |why: &str| self.excluded.add(ReportKind::Excluded, &String::from_utf8_lossy(&child), why);
            if let Err(why) = beneath::check_path(&child) {
                exclude(why);
                continue;
            }
            // What is gone or closed to us is no business of a count; the capture itself reports it.
            let Ok(found) = rustix::fs::statat(dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let kind = FileType::from_raw_mode(found.st_mode);
            if let Some(why) = uncarried(kind) {
                exclude(why);
            } else if kind == FileType::Directory && self.own == Some((found.st_dev, found.st_ino)) {
                exclude("it is the session's own storage");
            } else if kind == FileType::Directory {
                let Ok(inner) = beneath::open_dir(dir, &name) else { continue };
                self.directory(&inner, child)?;
            } else if kind == FileType::RegularFile {
                self.survey.files += 1;
                self.survey.file_bytes += data_bytes(found.st_size, found.st_blocks);
                self.file(dir, &name, &child, u64::try_from(found.st_size).unwrap_or(0));
            }
        }
        Ok(())
    }

    /// Looks through a file, if it is one that is looked through and there is still room.
    fn file(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8], size: u64) {
        if !is_searched(size) {
            return;
        }
        let at = String::from_utf8_lossy(path);
        if !self.search.has_room_for(size) {
            return self.search.tell(&mut self.secrets, &at, None);
        }
        let Ok(file) = beneath::open_file(dir, name) else { return };
        let mut text = Vec::new();
        // It may have grown meanwhile; then it is looked through as far as it was counted.
        if File::from(file).take(size).read_to_end(&mut text).is_ok() {
            let seen = self.search.look(&text);
            self.search.tell(&mut self.secrets, &at, seen.as_deref());
        }
    }
}

/// Blocks say how much of a large file is holes; of smaller ones they only say how the filesystem stores them.
fn data_bytes(size: i64, blocks: i64) -> u64 {
    let data = if size > SPARSE_BYTES { size.min(blocks.saturating_mul(512)) } else { size };
    u64::try_from(data).unwrap_or(0)
}
