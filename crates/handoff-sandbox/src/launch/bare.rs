//! Stage two where the host gives no namespaces and degraded was allowed: the init is an ordinary process of
//! the host's, in a session of its own. What is left to confine the payload are the filter on system calls,
//! Landlock, and cgroups where there are any. Which paths it sees are the host's, so the paths inside are
//! rewritten in its command and environment.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Carried;
use super::inside::hand_over;
use super::plan::{Bare, Failure, LaunchPlan, Payload, Stage};
use crate::confine::privileges;
use crate::isolation::Facet;
use crate::proc::{MARK, SUBCOMMAND};
use crate::spec::{DOOR_INSIDE, EXE_INSIDE, STATE_INSIDE, WORKSPACE_INSIDE};
use crate::sys;

/// What stands in for `/tmp`, beside the workspace.
pub(crate) const SCRATCH: &str = "tmp";

/// Becomes the init, or says why not.
pub(crate) fn run(mut plan: LaunchPlan, carried: Carried) -> ! {
    let report = rustix::io::fcntl_dupfd_cloexec(&carried.report, 10);
    plan.payload.bare = Some(Bare { dir: plan.dir.clone(), exe: plan.exe.clone(), name: plan.name.clone() });
    plan.payload.env.insert(MARK.to_owned(), plan.name.to_string());
    rewrite(&mut plan.payload, &plan.dir, &plan.exe);
    let Err(failure) = become_init(plan, carried);
    if let Ok(report) = report {
        let _ = failure.report().send(std::fs::File::from(report));
    }
    sys::exit_now(1)
}

fn become_init(plan: LaunchPlan, carried: Carried) -> Result<std::convert::Infallible, Failure> {
    rustix::process::setsid().losing("begin a session", &[Facet::Setsid])?;
    std::fs::create_dir_all(plan.dir.join(SCRATCH)).stage("make room for temporary files")?;
    // A plain user may not empty the bounding set; what is left shows when the init reads it back.
    let _ = privileges::drop_all();
    privileges::no_new_privs().losing("set no_new_privs", &[Facet::NoNewPrivs])?;
    let exe = CString::new(plan.exe.as_os_str().as_bytes()).stage("name the binary")?;
    let name = plan.name.clone();
    hand_over(plan, carried).stage("hand over to the init")?;
    let text = |text: &str| CString::new(text).expect("no NUL in a name");
    let words = [text("handoff"), text(SUBCOMMAND), text("init"), text(name.as_str())];
    let error = sys::exec(&exe, &words.each_ref().map(CString::as_c_str));
    Err(error).stage("execute the init")
}

/// Puts the host's paths where a word, or what follows an `=` in it, begins with one of the paths inside.
fn rewrite(payload: &mut Payload, dir: &Path, exe: &Path) {
    let places = [
        (EXE_INSIDE, exe.to_owned()),
        (WORKSPACE_INSIDE, dir.join("workspace")),
        (STATE_INSIDE, dir.join("state")),
        (DOOR_INSIDE, dir.join("door")),
        ("/tmp", dir.join(SCRATCH)),
    ];
    for word in payload.command.iter_mut().chain(payload.env.values_mut()) {
        let start = if word.starts_with('/') { 0 } else { word.find('=').map_or(0, |at| at + 1) };
        for (inside, outside) in &places {
            let Some(rest) = word[start..].strip_prefix(inside) else { continue };
            if rest.is_empty() || rest.starts_with('/') {
                *word = format!("{}{}{rest}", &word[..start], outside.display());
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_inside_become_the_hosts() {
        let word = |text: &str| {
            let mut payload = Payload {
                incarnation: handoff_protocol::IncarnationId::from_u128(1),
                command: vec![text.to_owned()],
                env: [("X".to_owned(), text.to_owned())].into(),
                pids: 1,
                log_bytes: 0,
                allow_degraded: true,
                bare: None,
                ends_with_maker: false,
            };
            rewrite(&mut payload, Path::new("/d"), Path::new("/b/handoff"));
            assert_eq!(payload.env["X"], payload.command[0]);
            payload.command.remove(0)
        };
        for (inside, outside) in [
            ("/handoff/bin/handoff", "/b/handoff"),
            ("/workspace", "/d/workspace"),
            ("/workspace/a=b", "/d/workspace/a=b"),
            ("--door=/handoff/door/gateway.sock", "--door=/d/door/gateway.sock"),
            ("/workspaces", "/workspaces"),
            ("cat /workspace", "cat /workspace"),
            ("", ""),
        ] {
            assert_eq!(word(inside), outside);
        }
    }
}
