//! A script: what the model says at each step, as data.

use serde::{Deserialize, Serialize};

use crate::Failure;

/// What a scripted model says, step by step. Step `n` answers the request that holds `n` assistant messages.
///
/// In texts and in string values of arguments, `{step}` stands for `n` and `{round}` for how often the script
/// has begun again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Its name.
    pub name: String,
    /// Says that the narration is flavor text, where it is.
    #[serde(default)]
    pub flavor: Option<String>,
    /// The first system prompt of a session that plays it.
    #[serde(default)]
    pub system_prompt: Option<String>,
    /// The first user message of a session that plays it.
    #[serde(default)]
    pub task: Option<String>,
    /// UTF-8 bytes of text or arguments in one chunk of a stream, about.
    #[serde(default = "chunk_bytes")]
    pub chunk_bytes: usize,
    /// Milliseconds before each chunk of a stream, and before an answer that is not streamed.
    #[serde(default)]
    pub delay_ms: u64,
    /// Bytes that count as one token.
    #[serde(default = "bytes_per_token")]
    pub bytes_per_token: u64,
    /// What comes after the last step.
    #[serde(default)]
    pub at_end: AtEnd,
    /// The steps.
    pub steps: Vec<Step>,
}

const fn chunk_bytes() -> usize {
    24
}

const fn bytes_per_token() -> u64 {
    4
}

/// What comes after the last step of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "then", rename_all = "snake_case", deny_unknown_fields)]
pub enum AtEnd {
    /// Every later request gets this text and no tool call.
    Idle {
        /// The text.
        text: String,
    },
    /// The script begins again at this step.
    LoopFrom {
        /// Index of the step, from 0.
        step: usize,
    },
}

impl Default for AtEnd {
    fn default() -> Self {
        Self::Idle { text: "There is nothing left to do.".to_owned() }
    }
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What it says.
    #[serde(default)]
    pub text: String,
    /// The tools that it calls. A tool that the request does not offer is not called.
    #[serde(default)]
    pub tool_calls: Vec<ScriptedCall>,
    /// In place of the script's.
    #[serde(default)]
    pub delay_ms: Option<u64>,
    /// In place of the script's.
    #[serde(default)]
    pub chunk_bytes: Option<usize>,
    /// Writes every character outside ASCII as an escape, and one UTF-16 unit per chunk, so that surrogate
    /// pairs arrive in two chunks, as some providers do.
    #[serde(default)]
    pub split_surrogates: bool,
    /// Failures that come before the answer.
    #[serde(default)]
    pub failures: Vec<Failure>,
    /// Usage that is stated in place of the counted one.
    #[serde(default)]
    pub usage: Option<StatedUsage>,
    /// States no usage at all, as some providers do.
    #[serde(default)]
    pub omit_usage: bool,
}

/// A tool call that the model makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// In place of one that is made from the step and the call's index. May be empty.
    #[serde(default)]
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: serde_json::Map<String, serde_json::Value>,
    /// The arguments' text, exactly, in place of `arguments`: for what JSON values cannot express.
    #[serde(default)]
    pub raw_arguments: Option<String>,
}

/// Token counts that a script states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatedUsage {
    /// All input, cached included.
    pub prompt_tokens: u64,
    /// All output, reasoning included.
    pub completion_tokens: u64,
    /// Input that was read from a cache.
    #[serde(default)]
    pub cached_tokens: u64,
    /// Output that is not shown.
    #[serde(default)]
    pub reasoning_tokens: u64,
}

/// Why a text is not a script.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// Not TOML of this shape.
    #[error("not a script in TOML")]
    Toml(#[from] toml::de::Error),
    /// Not JSON of this shape.
    #[error("not a script in JSON")]
    Json(#[from] serde_json::Error),
    /// A script that cannot be played.
    #[error("the script cannot be played: {0}")]
    Unplayable(&'static str),
}

impl Script {
    /// Reads a script: JSON if the text begins with `{`, else TOML.
    ///
    /// # Errors
    /// Another shape, an unknown field, or a loop to a step that does not exist.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let script: Self = match text.trim_start().starts_with('{') {
            true => serde_json::from_str(text)?,
            false => toml::from_str(text)?,
        };
        script.checked()
    }

    /// A script of these steps, with defaults for the rest.
    pub fn of(name: &str, steps: Vec<Step>) -> Self {
        Self {
            name: name.to_owned(),
            flavor: None,
            system_prompt: None,
            task: None,
            chunk_bytes: chunk_bytes(),
            delay_ms: 0,
            bytes_per_token: bytes_per_token(),
            at_end: AtEnd::default(),
            steps,
        }
    }

    /// The same script, if it can be played.
    pub(crate) fn checked(self) -> Result<Self, ScriptError> {
        if let AtEnd::LoopFrom { step } = self.at_end
            && step >= self.steps.len()
        {
            return Err(ScriptError::Unplayable("at_end loops to a step that does not exist"));
        }
        if self.bytes_per_token == 0 {
            return Err(ScriptError::Unplayable("bytes_per_token is 0"));
        }
        Ok(self)
    }

    /// The step that answers after so many assistant messages, and the round it is in. `None` past the end.
    pub(crate) fn step(&self, number: u64) -> Option<(&Step, u64)> {
        let length = self.steps.len() as u64;
        if number < length {
            return Some((&self.steps[number as usize], 0));
        }
        match self.at_end {
            AtEnd::Idle { .. } => None,
            AtEnd::LoopFrom { step } => {
                let span = length - step as u64;
                let beyond = number - length;
                Some((&self.steps[step + (beyond % span) as usize], 1 + beyond / span))
            }
        }
    }
}

impl Step {
    /// A step that only says something.
    pub fn say(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// A step that calls one tool with arguments given as the text of a JSON object.
    pub fn call(name: &str, arguments: &str) -> Self {
        Self::default().and_call(name, arguments)
    }

    /// The same step with one more call, its arguments given as the text of a JSON object.
    #[must_use]
    pub fn and_call(mut self, name: &str, arguments: &str) -> Self {
        self.tool_calls.push(ScriptedCall {
            id: None,
            name: name.to_owned(),
            arguments: serde_json::Map::new(),
            raw_arguments: Some(arguments.to_owned()),
        });
        self
    }

    /// The same step with one more failure before the answer.
    #[must_use]
    pub fn failing(mut self, failure: Failure) -> Self {
        self.failures.push(failure);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_counts_steps_and_rounds() {
        let mut script = Script::of("x", vec![Step::say("a"), Step::say("b"), Step::say("c")]);
        script.at_end = AtEnd::LoopFrom { step: 1 };
        let said = |n| script.step(n).map(|(step, round)| (step.text.as_str(), round));
        assert_eq!((said(0), said(2)), (Some(("a", 0)), Some(("c", 0))));
        assert_eq!((said(3), said(4), said(5)), (Some(("b", 1)), Some(("c", 1)), Some(("b", 2))));
    }

    #[test]
    fn past_the_end_there_is_no_step() {
        let script = Script::of("x", vec![Step::say("a")]);
        assert!(script.step(1).is_none());
    }

    #[test]
    fn unknown_fields_and_impossible_loops_are_refused() {
        let json = r#"{"name":"x","steps":[{"text":"a"}],"surprise":1}"#;
        assert!(matches!(Script::parse(json), Err(ScriptError::Json(_))));
        let looped = r#"{"name":"x","steps":[],"at_end":{"then":"loop_from","step":0}}"#;
        assert!(matches!(Script::parse(looped), Err(ScriptError::Unplayable(_))));
        assert!(Script::parse("name = 'x'\n[[steps]]\ntext = 'a'\n").is_ok());
    }
}
