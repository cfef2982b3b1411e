//! What a step says to one request: texts filled in, cut to the limit of tokens, and its usage.

use serde::{Deserialize, Serialize};

use crate::script::{AtEnd, Script, ScriptedCall, Step};
use crate::validate::Conversation;

/// Token counts as the wire format states them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// All input, cached included.
    pub prompt_tokens: u64,
    /// All output, reasoning included.
    pub completion_tokens: u64,
    /// Both together.
    pub total_tokens: u64,
    /// What of the input was read from a cache.
    pub prompt_tokens_details: PromptDetails,
    /// What of the output is not shown.
    pub completion_tokens_details: CompletionDetails,
}

/// A part of the input tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PromptDetails {
    /// Tokens that were read from a cache.
    pub cached_tokens: u64,
}

/// A part of the output tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CompletionDetails {
    /// Tokens of reasoning that is not shown.
    pub reasoning_tokens: u64,
}

/// One call, ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// One answer, ready to be written.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) number: u64,
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) finish: &'static str,
    /// Absent where the script states none.
    pub(crate) usage: Option<Usage>,
    pub(crate) chunk_bytes: usize,
    pub(crate) delay_ms: u64,
    pub(crate) split_surrogates: bool,
}

impl Reply {
    /// The script's answer to a request, at most `limit` tokens long.
    pub(crate) fn to(script: &Script, seen: &Conversation, limit: Option<u64>) -> Self {
        let number = seen.answered;
        let idle;
        let (step, round) = match (script.step(number), &script.at_end) {
            (Some(found), _) => found,
            (None, AtEnd::Idle { text }) => {
                idle = Step::say(text);
                (&idle, 0)
            }
            (None, AtEnd::LoopFrom { .. }) => unreachable!("a loop never ends"),
        };
        let fill = |text: &str| filled(text, number, round);
        let calls = step.tool_calls.iter().enumerate();
        let calls = calls.filter(|(_, call)| seen.tools.contains(&call.name));
        let mut reply = Self {
            number,
            text: fill(&step.text),
            calls: calls.map(|(index, call)| prepared(call, index, number, fill)).collect(),
            finish: "stop",
            usage: None,
            chunk_bytes: step.chunk_bytes.unwrap_or(script.chunk_bytes).max(1),
            delay_ms: step.delay_ms.unwrap_or(script.delay_ms),
            split_surrogates: step.split_surrogates,
        };
        if !reply.calls.is_empty() {
            reply.finish = "tool_calls";
        }
        let tokens = reply.cut_to(limit, script.bytes_per_token);
        reply.usage = (!step.omit_usage).then(|| usage(script, step, seen, tokens));
        reply
    }

    /// Cuts the answer where the limit is reached, as a model does: in mid-word or mid-arguments.
    fn cut_to(&mut self, limit: Option<u64>, bytes_per_token: u64) -> u64 {
        let mut room = limit.map_or(u64::MAX, |tokens| tokens.saturating_mul(bytes_per_token));
        let whole = room;
        let mut cut = take(&mut self.text, &mut room);
        self.calls.retain_mut(|call| {
            let name = call.name.len() as u64;
            if cut || room < name {
                cut = true;
                return false;
            }
            room -= name;
            cut = take(&mut call.arguments, &mut room);
            true
        });
        if cut {
            self.finish = "length";
        }
        (whole - room).div_ceil(bytes_per_token)
    }
}

/// Shortens the text to the room left, at a character's edge, and takes its bytes off. True if it was cut.
fn take(text: &mut String, room: &mut u64) -> bool {
    let fits = usize::try_from(*room).unwrap_or(usize::MAX);
    let cut = text.len() > fits;
    if cut {
        text.truncate(text.floor_char_boundary(fits));
    }
    *room -= text.len() as u64;
    cut
}

fn usage(script: &Script, step: &Step, seen: &Conversation, completion: u64) -> Usage {
    let (prompt, completion, cached, reasoning) = match step.usage {
        Some(stated) => {
            (stated.prompt_tokens, stated.completion_tokens, stated.cached_tokens, stated.reasoning_tokens)
        }
        None => (seen.input_bytes.div_ceil(script.bytes_per_token), completion, 0, 0),
    };
    Usage {
        prompt_tokens: prompt,
        completion_tokens: completion,
        total_tokens: prompt + completion,
        prompt_tokens_details: PromptDetails { cached_tokens: cached },
        completion_tokens_details: CompletionDetails { reasoning_tokens: reasoning },
    }
}

fn prepared(call: &ScriptedCall, index: usize, number: u64, fill: impl Fn(&str) -> String) -> Call {
    let arguments = match &call.raw_arguments {
        Some(raw) => fill(raw),
        None => {
            let mut arguments = serde_json::Value::Object(call.arguments.clone());
            fill_values(&mut arguments, &fill);
            arguments.to_string()
        }
    };
    let id = call.id.clone().unwrap_or_else(|| format!("call_{number}_{index}"));
    Call { id, name: call.name.clone(), arguments }
}

fn fill_values(value: &mut serde_json::Value, fill: &impl Fn(&str) -> String) {
    match value {
        serde_json::Value::String(text) => *text = fill(text),
        serde_json::Value::Array(items) => items.iter_mut().for_each(|item| fill_values(item, fill)),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(|item| fill_values(item, fill)),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}

fn filled(text: &str, step: u64, round: u64) -> String {
    text.replace("{step}", &step.to_string()).replace("{round}", &round.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(answered: u64, tools: &[&str]) -> Conversation {
        let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        Conversation { answered, tools, input_bytes: 41 }
    }

    fn script() -> Script {
        let say = Step::say("round {round}, step {step}").and_call("t", r#"{"a":"{step}"}"#);
        let mut script = Script::of("x", vec![say]);
        script.at_end = AtEnd::LoopFrom { step: 0 };
        script
    }

    #[test]
    fn usage_follows_from_bytes_and_texts_are_filled_in() {
        let reply = Reply::to(&script(), &seen(3, &["t"]), None);
        assert_eq!(reply.text, "round 3, step 3");
        assert_eq!(
            reply.calls,
            [Call { id: "call_3_0".into(), name: "t".into(), arguments: r#"{"a":"3"}"#.into() }]
        );
        let usage = reply.usage.expect("stated");
        // 41 bytes in; 15 of text, 1 of a name and 9 of arguments out.
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), (11, 7, 18));
        assert_eq!(reply.finish, "tool_calls");
    }

    #[test]
    fn a_tool_that_is_not_offered_is_not_called() {
        let reply = Reply::to(&script(), &seen(0, &[]), None);
        assert_eq!((reply.calls.len(), reply.finish), (0, "stop"));
    }

    #[test]
    fn an_answer_is_cut_at_the_limit_of_tokens() {
        let short = Reply::to(&script(), &seen(0, &["t"]), Some(2));
        assert_eq!((short.text.as_str(), short.calls.len(), short.finish), ("round 0,", 0, "length"));
        assert_eq!(short.usage.expect("stated").completion_tokens, 2);
        let cut_call = Reply::to(&script(), &seen(0, &["t"]), Some(5));
        assert_eq!((cut_call.calls[0].arguments.as_str(), cut_call.finish), (r#"{"a""#, "length"));
        let whole = Reply::to(&script(), &seen(0, &["t"]), Some(7));
        assert_eq!((whole.finish, whole.usage.expect("stated").completion_tokens), ("tool_calls", 7));
    }
}
