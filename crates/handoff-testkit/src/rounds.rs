//! How often a test with an element of chance is repeated: once every day, more in a full run.

/// The variable that a full suite sets.
pub const VARIABLE: &str = "HANDOFF_TEST_ROUNDS";

/// How many rounds this run asks for; one, where nothing is said.
///
/// # Panics
/// When the variable is set to something that is not a positive number: a full run must not be a short one.
pub fn rounds() -> u32 {
    let Ok(text) = std::env::var(VARIABLE) else { return 1 };
    let rounds = text.parse().unwrap_or(0);
    assert!(rounds > 0, "{VARIABLE} is '{text}'; it is a positive number");
    rounds
}
