//! The node's connection: replaced, dropped, misused.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use handoff_sandbox::control::{AgentState, FromInit, Refused, ToInit};
use handoff_sandbox::{Driver, InitClient, boot_ms, connect};

use crate::world::{HEART, SOON, as_root_and_as_user, assert_beats, client, eventually, log, size};

fn line(text: &str) -> ToInit {
    ToInit::Agent { line: text.to_owned() }
}

as_root_and_as_user! {
    /// Lines go both ways over descriptor 3, byte for byte.
    fn lines_pass_both_ways(world) {
        let spec = world.script("while read -r line <&3; do printf '%s\\n' \"$line\" >&3; done");
        world.start(&spec);
        let mut node = client(&spec);
        for text in [r#"{"type":"say","text":"grüße \\u0000"}"#, r#"{"n":117.63331139400017}"#] {
            assert_eq!(node.ask(&line(text), SOON).expect("answered").refused, None);
            let heard = node.next(SOON).expect("the init lives");
            assert_eq!(heard, Some(FromInit::Agent { line: text.to_owned() }));
        }
    }

    /// Every descriptor that the init waits on is what it was made as: one that had become something always ready
    /// kept a whole core busy.
    fn an_init_that_waits_uses_no_time(world) {
        let spec = world.script("sleep 600");
        let started = world.start(&spec);
        let ticks = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", started.init.pid)).expect("the init lives");
            let fields: Vec<&str> = stat.rsplit(')').next().expect("a name ends").split_whitespace().collect();
            fields[11].parse::<u64>().expect("a number") + fields[12].parse::<u64>().expect("a number")
        };
        let (before, then) = (ticks(), boot_ms());
        eventually("half a second passes", || boot_ms() > then + 500);
        assert!(ticks() - before < 5, "ticks of ten milliseconds: {}", ticks() - before);
    }

    /// A node that goes away and comes back finds everything as it left it, and hears what was said meanwhile.
    fn a_restarted_node_adopts(world) {
        let spec = world.script("while [ ! -e /workspace/alone ]; do sleep 0.01; done; echo '{\"type\":\"first\"}' >&3; echo '{\"type\":\"second\"}' >&3; sleep 600");
        let started = world.start(&spec);
        let mut node = client(&spec);
        let before = node.ask(&line("{}"), SOON).expect("answered");
        drop(node);
        fs::write(spec.workspace().join("alone"), "").expect("it is ours");
        let adopted = world.driver.adopt(&spec.name).expect("it runs");
        assert_eq!((adopted.pid, adopted.start_ticks), (started.init.pid, started.init.start_ticks));
        let (mut node, after) = InitClient::connect(&spec.dir, SOON).expect("the init listens");
        assert_eq!((before.incarnation, before.boot_id), (after.incarnation, after.boot_id));
        for text in ["first", "second"] {
            let heard = node.next(SOON).expect("the init lives");
            assert_eq!(heard, Some(FromInit::Agent { line: format!("{{\"type\":\"{text}\"}}") }));
        }
    }

    /// The newest connection is the node.
    fn a_new_connection_replaces_the_old(world) {
        let spec = world.script(HEART);
        world.start(&spec);
        let mut old = client(&spec);
        old.ask(&ToInit::Freeze, SOON).expect("answered");
        let mut new = client(&spec);
        assert!(old.next(SOON).is_err(), "the old one is closed");
        let status = new.ask(&ToInit::Thaw, SOON).expect("answered");
        assert!(!status.frozen);
        assert_beats(&spec);
    }

    /// The agent's last words, then the word of its end; also to a node that connects only afterwards. What
    /// it left behind has ended with it.
    fn the_end_of_the_agent_is_told(world) {
        let spec = world.script("while :; do printf x >> /workspace/beats; sleep 0.01; done & echo '{\"last\":1}' >&3; exit 3");
        world.start(&spec);
        for _ in 0..2 {
            let mut node = client(&spec);
            eventually("the end is told", || {
                matches!(node.next(SOON).expect("the init lives"), Some(FromInit::Exited { code: 3 }))
            });
            let status = node.ask(&ToInit::Status, SOON).expect("answered");
            assert_eq!(status.agent, AgentState::Exited { code: 3 });
            assert_eq!(node.ask(&line("{}"), SOON).expect("answered").refused, Some(Refused::AgentExited));
            crate::world::assert_still(&spec);
        }
    }

    /// What the init cannot read costs an answer and nothing else.
    fn nonsense_is_answered(world) {
        let spec = world.script(HEART);
        world.start(&spec);
        let mut raw = connect(&spec.dir).expect("the init listens");
        raw.write_all(b"{\"type\":\"melt\"}\n\xff\n[]\n{\"type\":\"status\"}\n").expect("sent");
        let mut reader = std::io::BufReader::new(raw);
        let mut statuses = Vec::new();
        while statuses.len() < 5 {
            let mut text = String::new();
            std::io::BufRead::read_line(&mut reader, &mut text).expect("the init answers");
            let FromInit::Status(status) = serde_json::from_str(&text).expect("a message") else { panic!("{text}") };
            statuses.push(status.refused);
        }
        let understood = statuses.iter().filter(|refused| refused.is_none()).count();
        assert_eq!(understood, 2, "the greeting and the last: {statuses:?}");
        assert_beats(&spec);
    }

    /// A hostile agent floods its connection: it is held back, not the init; nothing is lost of what fits.
    fn a_flood_of_the_agent_is_held_back(world) {
        let spec = world.script(
            "i=0; while [ $i -lt 3000 ]; do echo \"{\\\"i\\\":$i}\"; i=$((i+1)); done >&3; \
             head -c 1500000 /dev/zero | tr '\\0' x >&3; echo >&3; echo '{\"after\":1}' >&3; sleep 600",
        );
        world.start(&spec);
        let mut node = client(&spec);
        let status = node.ask(&ToInit::Status, SOON).expect("the init answers under the flood");
        assert_eq!(status.agent, AgentState::Running);
        let mut next = 0;
        loop {
            let Some(FromInit::Agent { line }) = node.next(SOON).expect("the init lives") else { panic!("{next}") };
            if line == "{\"after\":1}" {
                break;
            }
            assert_eq!(line, format!("{{\"i\":{next}}}"));
            next += 1;
        }
        assert_eq!(next, 3000);
        let status = node.ask(&ToInit::Status, SOON).expect("answered");
        assert_eq!(status.lines_dropped, 1, "the line that was too long");
    }

    /// Long lines that nobody reads are held back before they fill the init, whose memory is outside the tier's
    /// limit; none is lost.
    fn long_lines_do_not_fill_the_init(world) {
        let spec = world.script(
            "i=0; while [ $i -lt 60 ]; do head -c 1000000 /dev/zero | tr '\\0' x >&3; echo >&3; \
             printf x >> /workspace/lines; i=$((i+1)); done; sleep 600",
        );
        let started = world.start(&spec);
        let mut seen = (size(&spec, "lines"), Instant::now());
        eventually("the agent is held back", || {
            let lines = size(&spec, "lines");
            if lines != seen.0 {
                seen = (lines, Instant::now());
            }
            lines > 0 && seen.1.elapsed() > Duration::from_millis(400)
        });
        let status = fs::read_to_string(format!("/proc/{}/status", started.init.pid)).expect("the init lives");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
        assert!(peak < 24 << 10, "{peak} KiB");
        let mut node = client(&spec);
        for line in 0..60 {
            let heard = node.next(SOON).expect("the init lives");
            let Some(FromInit::Agent { line: text }) = heard else { panic!("{line}") };
            assert_eq!(text.len(), 1_000_000);
        }
    }

    /// An agent that does not read is told no more, and the init goes on.
    fn an_agent_that_does_not_read(world) {
        let spec = world.script("sleep 600");
        world.start(&spec);
        let mut node = client(&spec);
        let long = line(&format!("{{\"x\":\"{}\"}}", "y".repeat(500_000)));
        let refused = (0..40).find_map(|_| node.ask(&long, SOON).expect("answered").refused);
        assert_eq!(refused, Some(Refused::AgentBusy));
    }

    /// `kill` ends all of it, frozen or not.
    fn kill_ends_everything(world) {
        for freeze in [false, true] {
            let spec = world.script(HEART);
            let started = world.start(&spec);
            let mut node = client(&spec);
            assert_beats(&spec);
            if freeze {
                assert!(node.ask(&ToInit::Freeze, SOON).expect("answered").frozen);
            }
            assert!(node.kill(SOON).expect("connected"), "{}", log(&spec));
            assert!(started.init.ends_within(SOON));
            crate::world::assert_still(&spec);
            assert!(world.driver.adopt(&spec.name).is_none());
        }
    }

    /// A destination's path may be longer than a socket's address.
    fn long_paths_are_no_obstacle(world) {
        let mut spec = world.script(HEART);
        let long = world.path(&"d".repeat(150));
        fs::create_dir_all(&long).expect("it is ours");
        let dir = long.join("destination");
        fs::rename(&spec.dir, &dir).expect("it is ours");
        spec.dir = dir;
        spec.log = None;
        world.start(&spec);
        let mut node = client(&spec);
        assert!(node.ask(&ToInit::Freeze, SOON).expect("answered").frozen);
        assert_eq!(node.next(Duration::ZERO).expect("the init lives"), None);
        world.driver.teardown(&spec.name, &spec.dir).expect("all of it goes");
        world.assert_gone(&spec);
    }
}
