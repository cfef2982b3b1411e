//! The file tools.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use serde::Deserialize;

use super::beneath::{Workspace, told};
use super::{ToolLimits, bounded};

/// What `read_file` is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadAt {
    path: String,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    max_bytes: Option<usize>,
}

/// What `write_file` and `append_file` are asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) path: String,
    content: String,
}

/// What `list_files` is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    #[serde(default)]
    path: String,
    #[serde(default)]
    depth: Option<usize>,
}

/// The file tools with what they need.
pub(super) struct Files<'t> {
    pub(super) workspace: &'t Workspace,
    pub(super) limits: &'t ToolLimits,
    pub(super) cwd: String,
}

type Told = Result<String, String>;

impl Files<'_> {
    pub(super) fn read(&self, asked: &ReadAt) -> Told {
        let path = self.workspace.relative(&self.cwd, &asked.path)?;
        let limit = asked.max_bytes.unwrap_or(usize::MAX).min(self.limits.read_bytes);
        let read = || {
            let mut file = self.workspace.file(&path, OFlags::RDONLY)?;
            let total = file.metadata()?.len();
            file.seek(SeekFrom::Start(asked.offset))?;
            let mut bytes = Vec::new();
            file.take(limit as u64).read_to_end(&mut bytes)?;
            Ok(bounded(&bytes, limit, total.saturating_sub(asked.offset)))
        };
        read().map_err(|error| told(&path, &error))
    }

    pub(super) fn write(&self, asked: &Written) -> Told {
        self.put(asked, OFlags::WRONLY, |file| file.set_len(0))
    }

    pub(super) fn append(&self, asked: &Written) -> Told {
        self.put(asked, OFlags::WRONLY | OFlags::APPEND, |_| Ok(()))
    }

    fn put(
        &self,
        asked: &Written,
        flags: OFlags,
        prepare: impl Fn(&std::fs::File) -> std::io::Result<()>,
    ) -> Told {
        let path = self.workspace.relative(&self.cwd, &asked.path)?;
        let put = || {
            self.workspace.make_parents(&path)?;
            let mut file = self.workspace.file(&path, flags | OFlags::CREATE)?;
            prepare(&file)?;
            file.write_all(asked.content.as_bytes())?;
            file.metadata().map(|metadata| metadata.len())
        };
        let size = put().map_err(|error| told(&path, &error))?;
        let written = asked.content.len();
        Ok(format!("wrote {written} bytes; {} has {size} bytes", path.display()))
    }

    pub(super) fn list(&self, asked: &Listed) -> Told {
        let root = self.workspace.relative(&self.cwd, &asked.path)?;
        let mut found = Vec::new();
        let depth = asked.depth.unwrap_or(1).clamp(1, 16);
        let walked = self.walk(&root, Path::new(""), depth, &mut found);
        let whole = walked.map_err(|error| told(&root, &error))?;
        found.sort();
        let mut text: String = found.iter().map(|(_, line)| format!("{line}\n")).collect();
        if found.is_empty() {
            text.push_str("(empty)\n");
        }
        if !whole {
            text.push_str(&format!("[the first {} entries found]\n", found.len()));
        }
        Ok(text)
    }

    /// False if there were more entries than the limit.
    fn walk(
        &self,
        root: &Path,
        within: &Path,
        depth: usize,
        found: &mut Vec<(PathBuf, String)>,
    ) -> std::io::Result<bool> {
        let opened = self.workspace.directory(&root.join(within))?;
        let mut dir = Dir::read_from(&opened)?;
        while let Some(entry) = dir.read() {
            let entry = entry?;
            let name = Path::new(std::ffi::OsStr::new(bytes_as_os(entry.file_name().to_bytes())));
            if name == Path::new(".") || name == Path::new("..") {
                continue;
            }
            if found.len() >= self.limits.entries {
                return Ok(false);
            }
            let stat = rustix::fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let path = within.join(name);
            let kind = FileType::from_raw_mode(stat.st_mode);
            found.push((path.clone(), format!("{} {} {}", word(kind), stat.st_size, path.display())));
            if kind == FileType::Directory && depth > 1 && !self.walk(root, &path, depth - 1, found)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn bytes_as_os(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "dir",
        FileType::Symlink => "link",
        _ => "other",
    }
}
