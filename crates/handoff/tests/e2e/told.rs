//! What looks like a credential is told before anything travels, by place and kind.

use std::process::Command;

use crate::world::World;

/// H-35
#[test]
fn plan_and_move_name_what_looks_like_a_credential_and_never_show_it() {
    let world = World::new();
    let value = ["ghp_", "a1B2c3D4e5F6g7H8i9J0k1"].concat();
    std::fs::write(world.source_workspace().join(".env"), format!("# keys\nGITHUB={value}\n"))
        .expect("written");
    let line = ".env: line 2 holds what looks like a code host's token; it travels as it is";
    for words in [&["plan"][..], &["plan", "--json"], &["move"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handoff"));
        let output = command.args(words).env("HANDOFF_HOME", world.home()).output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!said.contains(&value), "{words:?}: {said}");
        match words {
            ["plan"] => assert!(said.contains(&format!("  takes along   {line}\n")), "{said}"),
            ["plan", "--json"] => {
                assert!(said.contains("line 2 holds what looks like a code host's token"), "{said}")
            }
            ["move"] => {
                let (told, staged) = (said.find(line), said.find("staged"));
                assert!(told.is_some() && staged.is_some(), "{said}");
            }
            _ => unreachable!("all are above"),
        }
    }
}
