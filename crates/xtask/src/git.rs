//! The few questions that are asked of git: which files count, which commit this is, what has changed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs git in the repository and returns its standard output.
///
/// # Errors
/// When git is missing or refuses.
fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    // A clone may belong to another user than the one who tests it (a container that runs as root).
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "-c", "core.quotePath=false"])
        .args(arguments)
        .current_dir(root)
        .output()
        .context("git is needed to know which files belong to the repository")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Paths of all files that are tracked, or would be with the next `git add`; sorted, each once.
///
/// # Errors
/// When git refuses.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let listing = git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut paths: Vec<String> =
        listing.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// The commit that is checked out, shortened.
///
/// # Errors
/// When there is none.
pub(crate) fn head(root: &Path) -> Result<String> {
    Ok(git(root, &["rev-parse", "--short=12", "HEAD"])?.trim().to_owned())
}

/// The hash of a file or folder as committed; none where it is not part of the commit.
pub(crate) fn tree(root: &Path, path: &str) -> Option<String> {
    let found = git(root, &["rev-parse", "--verify", "--quiet", &format!("HEAD:{path}")]).ok()?;
    Some(found.trim().chars().take(12).collect())
}

/// Paths that differ from the commit: changed, new or gone.
///
/// # Errors
/// When git refuses.
pub(crate) fn changed(root: &Path) -> Result<Vec<String>> {
    let listing = git(root, &["status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames"])?;
    Ok(listing.split('\0').filter_map(|entry| entry.get(3..)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        git(root, &["init", "--quiet"]).expect("git is there");
        std::fs::create_dir(root.join("a")).expect("a fresh folder");
        std::fs::write(root.join("a/one"), "1").expect("a fresh file");
        git(root, &["add", "."]).expect("a file to add");
        let who = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
        git(root, &[&who[..], &["commit", "--quiet", "-m", "one"]].concat()).expect("something to commit");
        folder
    }

    #[test]
    fn new_files_count_and_are_changes() {
        let folder = repository();
        std::fs::write(folder.path().join("a/zwei ü"), "2").expect("a fresh file");
        assert_eq!(files(folder.path()).expect("a repository"), ["a/one", "a/zwei ü"]);
        assert_eq!(changed(folder.path()).expect("a repository"), ["a/zwei ü"]);
    }

    #[test]
    fn a_tree_has_a_hash_only_when_committed() {
        let folder = repository();
        assert_eq!(tree(folder.path(), "a").expect("committed").len(), 12);
        assert_eq!(tree(folder.path(), "b"), None);
        assert_eq!(head(folder.path()).expect("a commit").len(), 12);
    }
}
