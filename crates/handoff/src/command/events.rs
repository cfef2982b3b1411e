//! Events for people: digests cut short, and a run of usage reports as its first, its last and their number.

use handoff_protocol::request::{EventType, EventView};

/// Characters of a digest that tell it from others.
const DIGEST: usize = 12;
/// What a digest begins with.
const ALGORITHM: &str = "sha256:";

/// The lines of an event log.
pub fn lines(events: &[EventView]) -> Vec<String> {
    let mut lines = Vec::new();
    let is_report = |event: &EventView| event.kind == EventType::UsageReported;
    for run in events.chunk_by(|one, next| is_report(one) && is_report(next)) {
        match run {
            [first, _, .., last] => {
                lines.push(line(first));
                lines.push(format!("   …  {} more usage reports", run.len() - 2));
                lines.push(line(last));
            }
            short => lines.extend(short.iter().map(line)),
        }
    }
    lines
}

/// One event in one line.
pub fn line(event: &EventView) -> String {
    let detail: Vec<String> =
        event.detail.iter().map(|(key, value)| format!("{key}={}", short(value))).collect();
    let (seq, at, kind) = (event.seq, event.at, event.kind.as_str());
    format!("  {seq:>3}  {at}  {kind:<19}  {}  {}", event.actor, detail.join(" "))
}

/// A digest, cut short; anything else as it is.
pub fn short(value: &str) -> &str {
    match value.strip_prefix(ALGORITHM) {
        Some(hex) => hex.get(..DIGEST).unwrap_or(hex),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::{Digest, EventId, Timestamp};

    use super::*;

    fn event(seq: u64, kind: EventType) -> EventView {
        EventView {
            event_id: EventId::from_u128(1),
            seq,
            kind,
            at: Timestamp::from_unix_ms(0),
            actor: "node".to_owned(),
            detail: [("digest".to_owned(), Digest::of(b"").to_string())].into(),
        }
    }

    #[test]
    fn a_run_of_reports_is_its_ends_and_digests_are_short() {
        let kinds = [EventType::Activated].into_iter().chain([EventType::UsageReported; 5]);
        let events: Vec<EventView> =
            kinds.chain([EventType::Terminated]).zip(1..).map(|(kind, seq)| event(seq, kind)).collect();
        let said = lines(&events);
        assert_eq!(said.len(), 5, "{said:?}");
        assert_eq!(said[2], "   …  3 more usage reports");
        assert!(said[1].starts_with("    2  1970") && said[3].starts_with("    6  1970"), "{said:?}");
        assert!(said[0].ends_with("digest=e3b0c44298fc"), "{said:?}");
        assert_eq!(lines(&events[1..3]).len(), 2, "nothing is left out of two");
    }
}
