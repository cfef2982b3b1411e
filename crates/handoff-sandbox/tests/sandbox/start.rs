//! Starts that fail leave nothing behind, and starts that succeed need nobody afterwards.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use handoff_sandbox::{Driver, Process, StartError};

use crate::world::{HEART, as_root_and_as_user, assert_beats, eventually, size};

as_root_and_as_user! {
    /// A program that is not there is a reason, with its name, and no sandbox.
    fn a_program_that_is_not_there(world) {
        let spec = world.spec(&["/no/such/program"]);
        let StartError::Failed { stage, why } = world.refused(&spec) else { panic!("another error") };
        assert_eq!(stage, "execute the agent");
        assert!(why.contains("os error 2"), "{why}");
        world.assert_gone(&spec);
    }

    /// Being late is an error, and what was begun is undone.
    fn a_start_that_takes_too_long(world) {
        let mut spec = world.script(HEART);
        spec.start_within = Duration::from_millis(1);
        assert!(matches!(world.refused(&spec), StartError::Late(_)));
        world.assert_gone(&spec);
    }

    /// A directory that is a link, or not there, is refused before anything is made.
    fn directories_have_to_be_directories(world) {
        let spec = world.script(HEART);
        fs::remove_dir(spec.door()).expect("it is ours");
        std::os::unix::fs::symlink("/etc", spec.door()).expect("it is ours");
        assert!(matches!(world.refused(&spec), StartError::Invalid(_)));
        fs::remove_file(spec.door()).expect("it is ours");
        assert!(matches!(world.refused(&spec), StartError::Invalid(_)));
        world.assert_gone(&spec);
    }

    /// A name is used once.
    fn a_name_that_is_taken(world) {
        let spec = world.script(HEART);
        let started = world.start(&spec);
        assert!(matches!(world.refused(&spec), StartError::NameTaken(_)));
        assert!(!started.init.ends_within(Duration::ZERO), "the first one is untouched");
        assert_beats(&spec);
        world.driver.teardown(&spec.name, &spec.dir).expect("all of it goes");
        world.start(&spec);
        assert_beats(&spec);
    }

    /// Nothing that is said in the plan reaches a shell, and empty words stay words.
    fn words_are_passed_as_they_are(world) {
        let mut spec = world.spec(&["/bin/sh", "-c", "printf '<%s>' \"$@\"; printf '<%s>' \"$ODD\"; echo", "sh", "", "a b", "$(id)", "ü\n"]);
        spec.env.insert("ODD".to_owned(), "x=y\n\"".to_owned());
        world.start(&spec);
        let expected = "<><a b><$(id)><ü\n><x=y\n\">\n";
        eventually("it is printed", || crate::world::log(&spec) == expected);
    }

    /// The one who started it ends; it lives on, and a later process finds it by name.
    fn it_outlives_who_started_it(world) {
        let spec = world.script(HEART);
        let mut command = Command::new(&world.exe);
        command.args(["start", spec.name.as_str()]).arg(&spec.dir).stdin(Stdio::null());
        let output = command.output().expect("it can be executed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let pid: i32 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a process id");
        let adopted = world.driver.adopt(&spec.name).expect("it runs");
        assert_eq!(adopted.pid, pid);
        assert_beats(&spec);
        world.driver.teardown(&spec.name, &spec.dir).expect("all of it goes");
        assert!(adopted.ends_within(Duration::ZERO));
        assert!(Process::open(pid, adopted.start_ticks).is_err(), "the id is not the process");
    }

    /// Two at once share nothing.
    fn two_at_once(world) {
        let specs = [world.script(HEART), world.script(HEART)];
        let driver = &world.driver;
        let started = std::thread::scope(|scope| {
            let starts = specs.each_ref().map(|spec| scope.spawn(move || driver.start(spec)));
            starts.map(|start| start.join().expect("no panic").expect("it starts"))
        });
        assert_ne!(started[0].init.pid, started[1].init.pid);
        for spec in &specs {
            assert_beats(spec);
            assert!(spec.dir.join("init.sock").exists());
        }
        world.driver.teardown(&specs[0].name, &specs[0].dir).expect("all of it goes");
        assert_beats(&specs[1]);
        let before = size(&specs[0], "beats");
        assert_beats(&specs[1]);
        assert_eq!(size(&specs[0], "beats"), before);
    }
}
