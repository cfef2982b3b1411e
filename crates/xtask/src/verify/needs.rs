//! Programs that suites need. What is missing is installed where that can be done, else its suite fails and
//! says what to install.

use std::path::Path;
use std::process::{Command, Stdio};

use super::suites::{Need, Suite};

/// Installs what is missing, when this is root on a system with apt.
pub(super) fn provide(suites: &[&Suite]) {
    let mut packages: Vec<&str> = suites
        .iter()
        .flat_map(|suite| &suite.needs)
        .filter(|need| !is_there(&need.program))
        .map(|need| need.apt.as_str())
        .collect();
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() || !rustix::process::geteuid().is_root() || !is_there("apt-get") {
        return;
    }
    println!("installing {}", packages.join(" "));
    if !(apt(&["update"]) && apt(&[&["install", "-y", "--no-install-recommends"], &packages[..]].concat())) {
        println!("apt-get could not install all of it; the suites that need it will say so");
    }
}

fn apt(arguments: &[&str]) -> bool {
    let command = Command::new("apt-get")
        .arg("-q")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status();
    command.is_ok_and(|status| status.success())
}

/// What is not there, as reasons.
pub(super) fn missing(suite: &Suite) -> Vec<String> {
    let say =
        |need: &Need| format!("{} is missing; install it, e.g. apt-get install {}", need.program, need.apt);
    suite.needs.iter().filter(|need| !is_there(&need.program)).map(say).collect()
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Joining an absolute path replaces the folder, so both kinds of name are looked for.
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) || Path::new(program).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_looked_for() {
        assert!(is_there("sh") && is_there("/bin/sh"));
        assert!(!is_there("no-such-program-here") && !is_there("/no/such/program"));
    }
}
