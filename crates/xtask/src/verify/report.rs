//! What a run says: after each suite, in the table at the end, and about what ran only in full.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::Outcome;
use super::record::Records;
use super::suites::{Registry, Tier};

/// One line when a suite has ended, and its reasons.
pub(super) fn suite(outcome: &Outcome) {
    let counts = &outcome.counts;
    println!(
        "── {}: {} passed, {} failed, {} s",
        outcome.name, counts.passed, counts.failed, outcome.seconds
    );
    for reason in &outcome.reasons {
        println!("   {reason}");
    }
}

/// All suites with their counts and times.
pub(super) fn table(outcomes: &[Outcome], set_up: Duration) {
    println!("\n{:<16} {:>7} {:>7} {:>7}", "suite", "passed", "failed", "seconds");
    for outcome in outcomes {
        let counts = &outcome.counts;
        println!("{:<16} {:>7} {:>7} {:>7}", outcome.name, counts.passed, counts.failed, outcome.seconds);
    }
    let seconds: u64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    println!("{:<16} {:>7} {:>7} {:>7}", "all and set-up", "", "", seconds + set_up.as_secs());
    for outcome in outcomes {
        for reason in &outcome.reasons {
            println!("failed: {}: {reason}", outcome.name);
        }
    }
}

/// What this run did not show, and when it was shown last.
pub(super) fn only_in_full(root: &Path, registry: &Registry, records: &Records) -> Result<()> {
    if registry.of(Tier::Full).next().is_none() {
        return Ok(());
    }
    println!("\nOnly in scripts/test --full:");
    for suite in registry.of(Tier::Full) {
        println!("  {}: {}", suite.name, records.standing(root, suite)?);
    }
    Ok(())
}

/// The suites by tier.
pub(super) fn list(root: &Path, registry: &Registry, records: &Records) -> Result<()> {
    for suite in registry.all() {
        let standing = match suite.tier {
            Tier::Quick => String::new(),
            Tier::Full => format!(" [full; {}]", records.standing(root, suite)?),
        };
        println!("{:<16} at most {:>2} min  {}{standing}", suite.name, suite.limit_minutes, suite.about);
    }
    Ok(())
}

/// Whether every full suite passed on exactly this code; says which did not.
pub(super) fn verified(root: &Path, registry: &Registry, records: &Records) -> Result<bool> {
    let (mut passed, mut failed) = (0, 0);
    for suite in registry.of(Tier::Full) {
        let standing = records.standing(root, suite)?;
        println!("{}: {standing}", suite.name);
        *(if standing.is_verified() { &mut passed } else { &mut failed }) += 1;
    }
    if failed > 0 {
        println!("run scripts/test --full, then commit docs/verification.toml");
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// The closing line. True when nothing failed.
pub(super) fn close(outcomes: &[Outcome]) -> bool {
    let passed: u64 = outcomes.iter().map(|outcome| outcome.counts.passed).sum();
    let failed: u64 = outcomes.iter().map(|outcome| outcome.counts.failed).sum();
    println!("\n{passed} passed, {failed} failed");
    failed == 0
}
