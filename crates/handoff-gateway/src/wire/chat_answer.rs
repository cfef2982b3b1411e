//! Chat Completions answers: where they say what was used. Cached tokens and cache writes stand inside
//! `prompt_tokens`, reasoning inside `completion_tokens`
//! (platform.openai.com/docs/api-reference/chat/object, /streaming).

use handoff_protocol::totals::Tokens;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Event;

#[derive(Deserialize)]
struct Answer<'b> {
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default, borrow)]
    choices: Option<Vec<Choice<'b>>>,
}

#[derive(Deserialize)]
struct Choice<'b> {
    #[serde(default, borrow)]
    delta: Option<&'b RawValue>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(default)]
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Deserialize, Default)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
    #[serde(default)]
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    #[serde(default)]
    reasoning_tokens: Option<u64>,
}

impl Usage {
    /// Kinds that do not overlap. A server that counts more cached than it counts input is taken at the
    /// larger word.
    fn tokens(self) -> Tokens {
        let details = self.prompt_tokens_details.unwrap_or_default();
        let (read, written) = (details.cached_tokens.unwrap_or(0), details.cache_write_tokens.unwrap_or(0));
        let reasoning = self.completion_tokens_details.and_then(|details| details.reasoning_tokens);
        Tokens {
            input: self.prompt_tokens.saturating_sub(read).saturating_sub(written),
            cache_read: read,
            cache_write_5m: written,
            cache_write_1h: 0,
            output: self.completion_tokens.max(reasoning.unwrap_or(0)),
            reasoning: reasoning.unwrap_or(0),
        }
    }
}

/// What an answer that was not streamed says was used.
pub(super) fn usage(answer: &[u8]) -> Option<Tokens> {
    let answer: Answer<'_> = serde_json::from_slice(answer).ok()?;
    answer.usage.map(Usage::tokens)
}

/// Reads the events of one stream.
#[derive(Debug, Default)]
pub(crate) struct ChatStream {
    usage: Option<Tokens>,
    output_bytes: u64,
}

impl ChatStream {
    /// Reads one event's data. Usage is cumulative where it comes more than once, so the last one counts.
    pub(crate) fn event(&mut self, data: &[u8]) -> Event {
        let Ok(answer) = serde_json::from_slice::<Answer<'_>>(data) else { return Event::default() };
        let usage = answer.usage.map(Usage::tokens);
        self.usage = usage.or(self.usage);
        let deltas = answer.choices.iter().flatten().filter_map(|choice| choice.delta);
        self.output_bytes += deltas.map(|delta| delta.get().len() as u64).sum::<u64>();
        let only_usage = usage.is_some() && answer.choices.is_some_and(|choices| choices.is_empty());
        Event { usage, only_usage }
    }

    /// Bytes of all deltas so far. A token has at least one byte.
    pub(crate) fn output_bytes(&self) -> u64 {
        self.output_bytes
    }

    /// What the stream has said was used.
    pub(crate) fn usage(&self) -> Option<Tokens> {
        self.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_apart() {
        let answer = br#"{"id":"x","usage":{"prompt_tokens":120,"completion_tokens":20,"total_tokens":140,
            "prompt_tokens_details":{"cached_tokens":64,"cache_write_tokens":6},
            "completion_tokens_details":{"reasoning_tokens":7}}}"#;
        let expected = Tokens {
            input: 50,
            cache_read: 64,
            cache_write_5m: 6,
            cache_write_1h: 0,
            output: 20,
            reasoning: 7,
        };
        assert_eq!(usage(answer), Some(expected));
    }

    #[test]
    fn what_does_not_say_it_is_unknown_and_not_zero() {
        for text in [
            "{}",
            r#"{"usage":null}"#,
            r#"{"usage":{}}"#,
            r#"{"usage":{"prompt_tokens":1}}"#,
            r#"{"usage":{"prompt_tokens":-1,"completion_tokens":1}}"#,
            r#"{"usage":{"prompt_tokens":1.5,"completion_tokens":1}}"#,
            "not JSON",
        ] {
            assert_eq!(usage(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn only_the_extra_chunk_is_extra() {
        let mut stream = ChatStream::default();
        let said = r#""usage":{"prompt_tokens":5,"completion_tokens":2}"#;
        assert_eq!(stream.event(br#"{"choices":[{"delta":{}}],"usage":null}"#), Event::default());
        let with_choice = stream.event(format!(r#"{{"choices":[{{}}],{said}}}"#).as_bytes());
        assert!(with_choice.usage.is_some() && !with_choice.only_usage);
        assert!(stream.event(format!(r#"{{"choices":[],{said}}}"#).as_bytes()).only_usage);
        assert_eq!(stream.event(br#"{"choices":[]}"#), Event::default(), "a filter's chunk is not ours");
        assert_eq!(stream.event(b"[DONE]"), Event::default());
        assert_eq!(stream.usage(), Some(Tokens { input: 5, output: 2, ..Tokens::default() }));
    }
}
