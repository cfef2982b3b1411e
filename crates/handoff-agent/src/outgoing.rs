//! The copy of the conversation that is sent to a model. The stored messages keep their bytes; what a provider
//! would refuse is mended in the copy alone: lone surrogates, empty blocks, ids that are empty or stand twice,
//! calls without a result and results without a call.

use std::collections::BTreeSet;

use crate::message::{INTERRUPTED, Role, ToolCall, answered_id, calls, role, tool_result};
use handoff_protocol::scan;

/// Something in the copy differs from what is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    /// Index of the message.
    pub(crate) message: u64,
    /// What was done in the copy.
    pub(crate) what: &'static str,
}

/// The conversation as it is sent: the inside of a JSON array, mended message by message.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    messages: String,
    count: u64,
    /// Calls that the copy still has to answer: the id as stored, and the call under its id in the copy.
    open: Vec<(String, ToolCall)>,
    ids: BTreeSet<String>,
}

struct Edit {
    at: std::ops::Range<usize>,
    with: String,
}

impl Outgoing {
    /// Takes in the next stored message, and says what was mended.
    pub(crate) fn push(&mut self, message: &str) -> Vec<Note> {
        let index = self.count;
        self.count += 1;
        let mut notes = Vec::new();
        let mut note = |what| notes.push(Note { message: index, what });
        let role = role(message).unwrap_or(Role::Other);
        if role == Role::Tool && !self.is_open(message) {
            note("a result without a call was left out");
            return notes;
        }
        if role != Role::Tool && self.close() {
            note("a call before this message had no result and got one that says so");
        }
        let mut edits = content_edits(message, role, &mut note);
        match role {
            Role::Assistant => self.call_edits(message, index, &mut edits, &mut note),
            Role::Tool => self.answer_edit(message, &mut edits),
            Role::User | Role::Other => {}
        }
        let copy = applied(message, edits);
        match scan::without_lone_surrogates(&copy) {
            Some(fixed) => {
                note("a lone surrogate was replaced by U+FFFD");
                self.add(&fixed);
            }
            None => self.add(&copy),
        }
        notes
    }

    /// The messages, comma-separated, to stand in an array.
    pub(crate) fn messages(&self) -> &str {
        &self.messages
    }

    fn add(&mut self, copy: &str) {
        if !self.messages.is_empty() {
            self.messages.push(',');
        }
        self.messages.push_str(copy);
    }

    fn is_open(&self, message: &str) -> bool {
        let id = scan::string(answered_id(message)).unwrap_or_default();
        self.open.iter().any(|(stored, _)| *stored == id)
    }

    fn close(&mut self) -> bool {
        let open = std::mem::take(&mut self.open);
        open.iter().for_each(|(_, call)| self.add(&tool_result(call, INTERRUPTED)));
        !open.is_empty()
    }

    fn call_edits(
        &mut self,
        message: &str,
        index: u64,
        edits: &mut Vec<Edit>,
        note: &mut impl FnMut(&'static str),
    ) {
        let Some(list) = scan::member(message, "tool_calls") else { return };
        let Some(elements) = scan::elements(list).filter(|elements| !elements.is_empty()) else {
            edits.extend(removal(message, "tool_calls"));
            return;
        };
        for (place, (element, mut call)) in elements.into_iter().zip(calls(message)).enumerate() {
            let stored = call.id_text();
            if stored.is_empty() || !self.ids.insert(stored.clone()) {
                note("a call's id was empty or stood twice and got another one");
                let minted = self.mint(index, place);
                call.id = crate::message::quoted(&minted);
                edits.push(id_edit(message, element, &call.id));
            }
            if let Some(edit) = arguments_edit(message, element, &call) {
                note("a lone surrogate in a call's arguments was replaced by U+FFFD");
                edits.push(edit);
            }
            self.open.push((stored, call));
        }
    }

    /// An id that follows from the call's place alone, so that every copy of a session has the same one.
    fn mint(&mut self, index: u64, place: usize) -> String {
        let mut minted = format!("call_{index}_{place}");
        while !self.ids.insert(minted.clone()) {
            minted.push('x');
        }
        minted
    }

    /// Equal ids are answered in the order of their calls.
    fn answer_edit(&mut self, message: &str, edits: &mut Vec<Edit>) {
        let written = answered_id(message);
        let id = scan::string(written).unwrap_or_default();
        let Some(at) = self.open.iter().position(|(stored, _)| *stored == id) else { return };
        let (_, call) = self.open.remove(at);
        if call.id_text() == id {
            return;
        }
        match scan::member(message, "tool_call_id") {
            Some(value) => edits.push(Edit { at: scan::place(message, value), with: call.id }),
            None => edits.push(insertion(message, &format!("\"tool_call_id\":{}", call.id))),
        }
    }
}

/// Leaves out text blocks with nothing in them: providers refuse a history that holds one.
fn content_edits(message: &str, role: Role, note: &mut impl FnMut(&'static str)) -> Vec<Edit> {
    let Some(content) = scan::member(message, "content") else { return Vec::new() };
    let calling = role == Role::Assistant
        && scan::member(message, "tool_calls")
            .and_then(scan::elements)
            .is_some_and(|calls| !calls.is_empty());
    let replaced = match scan::elements(content) {
        Some(blocks) => {
            let kept: Vec<_> = blocks.iter().filter(|block| !is_empty_text(block)).copied().collect();
            if kept.len() == blocks.len() && !blocks.is_empty() {
                return Vec::new();
            }
            match (kept.is_empty(), calling) {
                (false, _) => format!("[{}]", kept.join(",")),
                (true, true) => "null".to_owned(),
                (true, false) => "\"\"".to_owned(),
            }
        }
        // Beside calls an empty text is no text; some providers make an empty block of it.
        None if calling && scan::string(content).is_some_and(|text| text.trim().is_empty()) => {
            "null".to_owned()
        }
        None => return Vec::new(),
    };
    note("an empty text block was left out");
    vec![Edit { at: scan::place(message, content), with: replaced }]
}

fn is_empty_text(block: &str) -> bool {
    let kind = scan::member(block, "type").and_then(scan::string);
    let text = scan::member(block, "text").and_then(scan::string);
    kind.is_none_or(|kind| kind == "text") && text.is_some_and(|text| text.trim().is_empty())
}

fn id_edit(message: &str, element: &str, id: &str) -> Edit {
    match scan::member(element, "id") {
        Some(value) => Edit { at: scan::place(message, value), with: id.to_owned() },
        None => {
            let mut edit = insertion(element, &format!("\"id\":{id}"));
            let offset = scan::place(message, element).start;
            edit.at = edit.at.start + offset..edit.at.end + offset;
            edit
        }
    }
}

/// Arguments are JSON inside a JSON string, and some providers parse both.
fn arguments_edit(message: &str, element: &str, call: &ToolCall) -> Option<Edit> {
    let fixed = scan::without_lone_surrogates(&call.arguments)?;
    let written = scan::member(scan::member(element, "function")?, "arguments")?;
    Some(Edit { at: scan::place(message, written), with: crate::message::quoted(&fixed) })
}

/// A member added as the first one of an object.
fn insertion(object: &str, member: &str) -> Edit {
    let at = object.find('{').map_or(0, |brace| brace + 1);
    let comma = if scan::members(object).is_some_and(|members| members.is_empty()) { "" } else { "," };
    Edit { at: at..at, with: format!("{member}{comma}") }
}

/// A member taken out of an object, with the comma beside it.
fn removal(object: &str, key: &str) -> Option<Edit> {
    let members = scan::members(object)?;
    let at = members.iter().position(|member| scan::string(member.key).as_deref() == Some(key))?;
    let key = scan::place(object, members[at].key);
    let value = scan::place(object, members[at].value);
    let range = match (at.checked_sub(1), members.get(at + 1)) {
        (_, Some(next)) => key.start..scan::place(object, next.key).start,
        (Some(before), None) => scan::place(object, members[before].value).end..value.end,
        (None, None) => key.start..value.end,
    };
    Some(Edit { at: range, with: String::new() })
}

fn applied(message: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| edit.at.start);
    let mut copy = String::with_capacity(message.len());
    let mut kept = 0;
    for edit in edits {
        copy.push_str(&message[kept..edit.at.start]);
        copy.push_str(&edit.with);
        kept = edit.at.end;
    }
    copy.push_str(&message[kept..]);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(messages: &[impl AsRef<str>]) -> (String, Vec<Note>) {
        let mut outgoing = Outgoing::default();
        let notes = messages.iter().flat_map(|message| outgoing.push(message.as_ref())).collect();
        (outgoing.messages().to_owned(), notes)
    }

    fn asked(ids: &[&str]) -> String {
        let call =
            |id| format!(r#"{{"id":"{id}","type":"function","function":{{"name":"t","arguments":"{{}}"}}}}"#);
        let calls: Vec<_> = ids.iter().map(call).collect();
        format!(r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, calls.join(","))
    }

    fn answer(id: &str, text: &str) -> String {
        format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"{text}"}}"#)
    }

    #[test]
    fn what_needs_no_mending_is_sent_byte_for_byte() {
        let messages = [
            r#"{"role":"user","content":"a\u0000b", "x":[-0, 1e400,18446744073709551616]}"#.to_owned(),
            r#"{"b":1,"a":2,"role":"assistant","content":[{"type":"thinking","thinking":"abc","signature":"s","z":{"q":1.50}}]}"#.to_owned(),
            asked(&["a"]),
            answer("a", ""),
        ];
        let (text, notes) = sent(&messages);
        assert_eq!(text, messages.join(","));
        assert_eq!(notes, []);
    }

    /// H-32
    #[test]
    fn case_s01_only_the_copy_loses_a_lone_surrogate() {
        let (text, notes) = sent(&[r#"{"role":"user","content":"\ud83d","k\ud83d":"\ud83d\ude00"}"#]);
        assert_eq!(text, r#"{"role":"user","content":"\ufffd","k\ufffd":"\ud83d\ude00"}"#);
        assert_eq!(notes, [Note { message: 0, what: "a lone surrogate was replaced by U+FFFD" }]);
    }

    #[test]
    fn case_s01_inside_the_arguments_of_a_call_too() {
        let asked = r#"{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"t","arguments":"{\"x\":\"\\ud83d\"}"}}]}"#;
        let (text, notes) = sent(&[asked.to_owned(), answer("a", "x")]);
        assert!(text.contains(r#""arguments":"{\"x\":\"\\ufffd\"}""#), "{text}");
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn case_s04_empty_ids_get_the_same_ids_every_time_and_keep_their_pairs() {
        let messages = [asked(&["", ""]), answer("", "one"), answer("", "two")];
        let (text, notes) = sent(&messages);
        let expected =
            [asked(&["call_0_0", "call_0_1"]), answer("call_0_0", "one"), answer("call_0_1", "two")];
        assert_eq!(text, expected.join(","));
        assert_eq!(notes.len(), 2);
        assert_eq!(sent(&messages).0, text);
    }

    #[test]
    fn ids_that_stand_twice_and_ids_that_are_missing_are_minted_too() {
        let twice = [asked(&["a"]), answer("a", "1"), asked(&["a"]), answer("a", "2")];
        let expected = [asked(&["a"]), answer("a", "1"), asked(&["call_2_0"]), answer("call_2_0", "2")];
        assert_eq!(sent(&twice).0, expected.join(","));
        let missing = r#"{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"t","arguments":""}}]}"#;
        let (text, _) = sent(&[missing, r#"{"role":"tool","content":"x"}"#]);
        assert!(text.contains(r#"[{"id":"call_0_0","type""#), "{text}");
        assert!(text.contains(r#"{"tool_call_id":"call_0_0","role":"tool""#), "{text}");
        let taken = [asked(&["call_1_0"]), answer("call_1_0", ""), asked(&[""]), answer("", "")];
        assert!(sent(&taken).0.contains("call_2_0"));
    }

    #[test]
    fn calls_without_results_and_results_without_calls_are_mended() {
        let messages = [asked(&["a", "b"]), answer("b", "x"), crate::message::user("go on")];
        let expected = [&messages[0], &messages[1], &answer("a", INTERRUPTED), &messages[2]]
            .map(String::as_str)
            .join(",");
        assert_eq!(sent(&messages).0, expected);
        let (text, notes) = sent(&[answer("gone", "x"), crate::message::user("hi")]);
        assert_eq!(text, r#"{"role":"user","content":"hi"}"#);
        assert_eq!(notes[0].what, "a result without a call was left out");
    }

    #[test]
    fn case_s07_empty_text_blocks_are_left_out() {
        let block = r#"{"type":"image_url","image_url":{"url":"data:,"}}"#;
        for (stored, expected) in [
            (r#"[{"text":""},BLOCK]"#, "[BLOCK]"),
            (
                r#"[{"type":"text","text":" \n\t"}, BLOCK ,{"type":"text","text":"x"}]"#,
                r#"[BLOCK,{"type":"text","text":"x"}]"#,
            ),
            (r#"[{"type":"text","text":""}]"#, "\"\""),
            ("[]", "\"\""),
            ("\"\"", "\"\""),
            ("\"  \"", "\"  \""),
        ] {
            let message =
                |content: &str| format!(r#"{{"role":"user","content":{content}}}"#).replace("BLOCK", block);
            assert_eq!(sent(&[&message(stored)]).0, message(expected));
        }
        let calling = |content: &str| asked(&["a"]).replace("null", content);
        for empty in ["\"\"", "\" \"", r#"[{"type":"text","text":""}]"#, "[]"] {
            assert_eq!(
                sent(&[calling(empty), answer("a", "")]).0,
                [calling("null"), answer("a", "")].join(",")
            );
        }
    }

    #[test]
    fn an_empty_list_of_calls_is_left_out() {
        for (stored, expected) in [
            (
                r#"{"role":"assistant","content":"x","tool_calls":[]}"#,
                r#"{"role":"assistant","content":"x"}"#,
            ),
            (
                r#"{"tool_calls":null,"role":"assistant","content":"x"}"#,
                r#"{"role":"assistant","content":"x"}"#,
            ),
        ] {
            assert_eq!(sent(&[stored]).0, expected);
        }
    }
}
