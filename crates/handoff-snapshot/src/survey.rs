//! What a capture would carry, counted without reading a file: for the plan before a move.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use handoff_protocol::document::{ReportEntry, ReportKind};
use rustix::fs::{AtFlags, FileType};
use serde::Serialize;

use crate::beneath;
use crate::capture::{CaptureError, Moment, session, uncarried};
use crate::limits::WORKSPACE_ENTRIES;
use crate::report::Report;

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
    let boundary = session::read(state_dir, Moment::Draft)?.boundary;
    let mut survey = Survey {
        messages: boundary.messages,
        message_bytes: boundary.messages_bytes,
        steps: boundary.step,
        ..Survey::default()
    };
    let mut report = Report::default();
    if let Some(dir) = workspace_dir {
        let root = beneath::open_root(&dir).map_err(|error| CaptureError::io(b".", error))?;
        let own = rustix::fs::stat(state_dir).ok().map(|found| (found.st_dev, found.st_ino));
        count(&root, Vec::new(), own, &mut survey, &mut report)?;
    }
    survey.excluded = report.finish();
    Ok(survey)
}

/// The walk is as deep as paths may be, which is checked before a level is entered.
fn count(
    dir: &OwnedFd,
    path: Vec<u8>,
    own: Option<(u64, u64)>,
    survey: &mut Survey,
    report: &mut Report,
) -> Result<(), CaptureError> {
    for name in beneath::names(dir, WORKSPACE_ENTRIES).map_err(|error| CaptureError::io(&path, error))? {
        let parents = if path.is_empty() { Vec::new() } else { [&path[..], b"/"].concat() };
        let child = [parents, name.clone()].concat();
        let mut exclude = |why: &str| report.add(ReportKind::Excluded, &String::from_utf8_lossy(&child), why);
        if let Err(why) = beneath::check_path(&child) {
            exclude(why);
            continue;
        }
        // What is gone or closed to us is no business of a count; the capture itself reports it.
        let Ok(found) = rustix::fs::statat(dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = FileType::from_raw_mode(found.st_mode);
        if let Some(why) = uncarried(kind) {
            exclude(why);
        } else if kind == FileType::Directory && own == Some((found.st_dev, found.st_ino)) {
            exclude("it is the session's own storage");
        } else if kind == FileType::Directory {
            let Ok(inner) = beneath::open_dir(dir, &name) else { continue };
            count(&inner, child, own, survey, report)?;
        } else if kind == FileType::RegularFile {
            survey.files += 1;
            survey.file_bytes += data_bytes(found.st_size, found.st_blocks);
        }
    }
    Ok(())
}

/// Blocks say how much of a large file is holes; of smaller ones they only say how the filesystem stores them.
fn data_bytes(size: i64, blocks: i64) -> u64 {
    let data = if size > SPARSE_BYTES { size.min(blocks.saturating_mul(512)) } else { size };
    u64::try_from(data).unwrap_or(0)
}
