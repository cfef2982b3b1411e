//! `cargo xtask verify`: runs the suites of `scripts/suites.toml`, counts, keeps the time, and holds what ran
//! in full against what has changed since. `scripts/test` is the way in.
//!
//! A suite that cannot run has failed. The last line is always `N passed, N failed`, alone.

mod count;
mod machine;
mod needs;
mod processes;
mod record;
mod report;
mod step;
mod suites;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use count::Counts;
use record::Records;
use suites::{Registry, Suite, Tier};

/// The quick tier fails when it takes longer than this, set-up included.
const QUICK_LIMIT: Duration = Duration::from_secs(75 * 60);

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run these suites only
    suites: Vec<String>,
    /// Run the suites that are too long for every day, and record what they showed. Those that are recorded
    /// and unchanged since are not repeated, unless they are named
    #[arg(long)]
    full: bool,
    /// Run nothing; fail unless every full suite passed on exactly this code
    #[arg(long, conflicts_with_all = ["full", "list", "suites"])]
    verified: bool,
    /// Run nothing; list the suites
    #[arg(long, conflicts_with = "full")]
    list: bool,
    /// Seconds that set-up has taken already
    #[arg(long, default_value_t = 0, hide = true)]
    elapsed: u64,
}

/// How a suite ended.
pub(super) struct Outcome {
    name: String,
    counts: Counts,
    seconds: u64,
    /// Why it failed, one sentence each.
    reasons: Vec<String>,
}

/// Runs what was asked for. True when nothing failed. Whatever happens, the closing line comes last.
///
/// # Errors
/// Never: what goes wrong is said, and has failed.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    carry_out(root, options).or_else(|error| {
        println!("{error:#}\n");
        println!("0 passed, 1 failed");
        Ok(false)
    })
}

fn carry_out(root: &Path, options: &Options) -> Result<bool> {
    let registry = Registry::load(root)?;
    let mut records = Records::load(root)?;
    if options.list {
        report::list(root, &registry, &records)?;
        return Ok(true);
    }
    if options.verified {
        return report::verified(root, &registry, &records);
    }
    let chosen = choose(root, &registry, &records, options)?;
    if chosen.is_empty() {
        println!("there is nothing to run");
    }
    needs::provide(&chosen);
    let is_quick_tier = !options.full && options.suites.is_empty();
    let used = Duration::from_secs(options.elapsed);
    let end = is_quick_tier.then(|| Instant::now() + QUICK_LIMIT.saturating_sub(used));
    let run = Run { root, out: out_folder(root)?, end };
    let mut outcomes = Vec::new();
    for (nth, suite) in chosen.iter().enumerate() {
        println!("\n── {} ({} of {}): {} ──", suite.name, nth + 1, chosen.len(), suite.about);
        let outcome = run.suite(suite);
        report::suite(&outcome);
        if options.full && suite.tier == Tier::Full {
            records.put(root, suite, &outcome)?;
        }
        outcomes.push(outcome);
    }
    report::table(&outcomes, used);
    if is_quick_tier {
        report::only_in_full(root, &registry, &records)?;
    }
    Ok(report::close(&outcomes))
}

fn choose<'r>(
    root: &Path,
    registry: &'r Registry,
    records: &Records,
    options: &Options,
) -> Result<Vec<&'r Suite>> {
    let tier = if options.full { Tier::Full } else { Tier::Quick };
    let mut chosen = Vec::new();
    if options.suites.is_empty() {
        for suite in registry.of(tier) {
            let standing = if options.full { Some(records.standing(root, suite)?) } else { None };
            match standing {
                Some(standing) if standing.is_verified() => {
                    println!("{}: {standing}; not repeated", suite.name)
                }
                Some(_) | None => chosen.push(suite),
            }
        }
    }
    for name in &options.suites {
        let Some(suite) = registry.find(name) else {
            bail!("there is no suite '{name}'; there are {}", registry.names().join(", "));
        };
        chosen.push(suite);
    }
    if options.full {
        for suite in chosen.iter().filter(|suite| suite.tier == Tier::Full) {
            record::must_be_committed(root, suite)?;
        }
    }
    Ok(chosen)
}

/// Where suites leave what they write: `verify/` in the target folder.
fn out_folder(root: &Path) -> Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |path| root.join(path));
    let out = target.join("verify");
    std::fs::create_dir_all(&out)?;
    Ok(out)
}

struct Run<'a> {
    root: &'a Path,
    out: PathBuf,
    /// When the whole run must be over.
    end: Option<Instant>,
}

impl Run<'_> {
    fn suite(&self, suite: &Suite) -> Outcome {
        let started = Instant::now();
        let limit = started + Duration::from_secs(suite.limit_minutes * 60);
        let deadline = self.end.map_or(limit, |end| end.min(limit));
        let mut counts = Counts::default();
        let mut reasons = needs::missing(suite);
        if reasons.is_empty() {
            for step in &suite.steps {
                let mut tally = |line: &str| counts.read(line);
                if let Err(reason) = step::run(self.root, &self.out, step, deadline, &mut tally) {
                    reasons.push(format!("{}: {reason}", step.run.join(" ")));
                    break;
                }
            }
        }
        counts.finish(reasons.is_empty());
        reasons.extend(counts.complaint());
        let seconds = started.elapsed().as_secs();
        Outcome { name: suite.name.clone(), counts, seconds, reasons }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(text: &str) -> Suite {
        let registry = Registry::parse(text).expect("a registry");
        registry.of(Tier::Quick).next().expect("one suite").clone()
    }

    fn run_suite(text: &str) -> Outcome {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = Run { root: folder.path(), out: folder.path().to_owned(), end: None };
        run.suite(&suite(text))
    }

    const HEAD: &str = "[[suite]]\nname = \"s\"\ntier = \"quick\"\nabout = \"a\"\nlimit_minutes = 1\n";

    #[test]
    fn a_suite_without_counts_of_its_own_counts_as_one() {
        let outcome = run_suite(&format!("{HEAD}steps = [{{ run = [\"true\"] }}]\n"));
        assert_eq!((outcome.counts.passed, outcome.counts.failed), (1, 0));
        let outcome =
            run_suite(&format!("{HEAD}steps = [{{ run = [\"false\"] }}, {{ run = [\"true\"] }}]\n"));
        assert_eq!((outcome.counts.passed, outcome.counts.failed), (0, 1));
        assert_eq!(outcome.reasons, ["false: it ended with exit status: 1"]);
    }

    #[test]
    fn what_cannot_run_has_failed() {
        let outcome = run_suite(&format!("{HEAD}steps = [{{ run = [\"no-such-program-here\"] }}]\n"));
        assert_eq!((outcome.counts.passed, outcome.counts.failed), (0, 1));
        let needs = "needs = [{ program = \"no-such-program-here\", apt = \"nothing\" }]\n";
        let outcome = run_suite(&format!("{HEAD}{needs}steps = [{{ run = [\"true\"] }}]\n"));
        assert_eq!(outcome.counts.failed, 1);
        assert!(outcome.reasons[0].contains("apt-get install nothing"), "{:?}", outcome.reasons);
    }

    #[test]
    fn a_run_out_of_time_fails_what_is_left() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = Run { root: folder.path(), out: folder.path().to_owned(), end: Some(Instant::now()) };
        let outcome = run.suite(&suite(&format!("{HEAD}steps = [{{ run = [\"true\"] }}]\n")));
        assert_eq!(outcome.counts.failed, 1);
        assert!(outcome.reasons[0].contains("no time was left"), "{:?}", outcome.reasons);
    }

    #[test]
    fn saved_output_can_be_read_by_the_next_step() {
        let steps = "steps = [{ run = [\"echo\", \"7 passed, 0 failed\"], save = \"a\" }, { run = [\"cat\", \"{out}/a\"] }]\n";
        assert_eq!(run_suite(&format!("{HEAD}{steps}")).counts.passed, 7);
    }
}
