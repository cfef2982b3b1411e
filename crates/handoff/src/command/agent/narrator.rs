//! What an agent says of itself on standard error, in names and numbers: never what is in its conversation.

use handoff_agent::control::FromAgent;
use handoff_agent::machine::Effect;

use crate::output::Output;

/// Follows an agent's effects, line by line.
pub(super) struct Narrator {
    output: Output,
    /// Tools that ran since the last step was done.
    tools: Vec<String>,
}

impl Narrator {
    pub(super) fn new(output: Output) -> Self {
        Self { output, tools: Vec::new() }
    }

    /// Says what an effect means, where it means something to whoever reads along.
    pub(super) fn see(&mut self, effect: &Effect) {
        if let Some(line) = self.line(effect) {
            self.output.progress(line);
        }
    }

    fn line(&mut self, effect: &Effect) -> Option<String> {
        match effect {
            Effect::RunTool { call, .. } => {
                self.tools.push(call.name.chars().filter(|part| !part.is_control()).take(40).collect());
                None
            }
            Effect::Epoch(epoch) => Some(format!("the session is here in epoch {epoch}")),
            Effect::Tell(told) => self.told(told),
            Effect::Wait { wait_ms, .. } if *wait_ms >= 1_000 => {
                Some(format!("tries again in {} s", wait_ms / 1_000))
            }
            Effect::Append(_)
            | Effect::WriteBoundary(_)
            | Effect::WriteStanding(_)
            | Effect::CallModel { .. }
            | Effect::CancelModel
            | Effect::CancelTool
            | Effect::Wait { .. }
            | Effect::Deadline { .. }
            | Effect::Stop(_) => None,
        }
    }

    fn told(&mut self, told: &FromAgent) -> Option<String> {
        match told {
            FromAgent::Step { step } => {
                let tools = std::mem::take(&mut self.tools);
                let tools = if tools.is_empty() { String::new() } else { format!("  {}", tools.join(", ")) };
                Some(format!("step {step}{tools}"))
            }
            FromAgent::Idle { step } => {
                Some(format!("nothing to do after step {step}; it waits to be told something"))
            }
            FromAgent::Quiesced { boundary, frozen } => {
                let how = if *frozen { "stands still for a move" } else { "stands still" };
                Some(format!("{how} at step {}", boundary.step))
            }
            FromAgent::Failed { reason } => Some(format!("cannot go on: {reason}")),
            FromAgent::Ready { .. }
            | FromAgent::SnapshotRequested { .. }
            | FromAgent::Status(_)
            | FromAgent::Heard { .. }
            | FromAgent::Note { .. }
            | FromAgent::Refused { .. }
            | FromAgent::Retired => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H-15
    #[test]
    fn steps_are_named_and_contents_are_not() {
        let mut narrator = Narrator::new(Output::new(false));
        let call = serde_json::json!({"name": "shell", "arguments": "{\"command\": \"canary\"}"});
        let call = handoff_agent::ToolCall {
            id: "1".to_owned(),
            name: call["name"].as_str().expect("a name").to_owned(),
            arguments: call["arguments"].as_str().expect("text").to_owned(),
        };
        assert_eq!(narrator.line(&Effect::RunTool { ticket: 1, call }), None);
        assert_eq!(narrator.line(&Effect::Append("canary".to_owned())), None);
        let step = |step| Effect::Tell(FromAgent::Step { step });
        assert_eq!(narrator.line(&step(1)).as_deref(), Some("step 1  shell"));
        assert_eq!(narrator.line(&step(2)).as_deref(), Some("step 2"));
        let failed = Effect::Tell(FromAgent::Failed { reason: "no such model".to_owned() });
        assert_eq!(narrator.line(&failed).as_deref(), Some("cannot go on: no such model"));
    }
}
