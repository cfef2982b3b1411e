//! Words that people choose: labels, reasons, names. Short, printable, and no more of them than a row holds.

use handoff_protocol::limits::{LABELS, WORDS_BYTES};
use handoff_protocol::request::Labels;

use crate::error::ServiceError;

/// Refuses words that are too long or hold control characters.
pub(crate) fn check(field: &'static str, words: &str) -> Result<(), ServiceError> {
    let wrong = |why: String| Err(ServiceError::InvalidArgument { field, why });
    if words.len() > WORDS_BYTES {
        return wrong(format!("it has {} bytes; at most {WORDS_BYTES} are kept", words.len()));
    }
    if words.chars().any(char::is_control) {
        return wrong("it holds a control character".to_owned());
    }
    Ok(())
}

/// The same, and there must be some.
pub(crate) fn check_some(field: &'static str, words: &str) -> Result<(), ServiceError> {
    if words.trim().is_empty() {
        return Err(ServiceError::InvalidArgument { field, why: "it is empty".to_owned() });
    }
    check(field, words)
}

/// Refuses labels that are too many or not words.
pub(crate) fn check_labels(labels: &Labels) -> Result<(), ServiceError> {
    if labels.len() > LABELS {
        let why = format!("there are {}; at most {LABELS} are kept", labels.len());
        return Err(ServiceError::InvalidArgument { field: "labels", why });
    }
    for (key, value) in labels {
        check_some("labels", key)?;
        check("labels", value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_short_and_printable() {
        assert!(check("reason", "done, thanks – ünïcode").is_ok());
        for bad in ["a\nb", "a\u{0}", &"x".repeat(WORDS_BYTES + 1)] {
            assert!(check("reason", bad).is_err(), "{bad}");
        }
        assert!(check_some("reason", " ").is_err());
        let many: Labels = (0..=LABELS).map(|n| (n.to_string(), String::new())).collect();
        assert!(check_labels(&many).is_err());
    }
}
