//! The scripts that come with the product.

use crate::script::Script;

/// The built-in script of this name: `inventory`, the task that the demo moves.
pub fn builtin(name: &str) -> Option<Script> {
    let text = match name {
        "inventory" => include_str!("../scripts/inventory.toml"),
        _ => return None,
    };
    Some(Script::parse(text).expect("a built-in script is well-formed; a test plays it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AtEnd;

    #[test]
    fn the_inventory_script_goes_on_for_ever_and_marks_its_flavor() {
        let script = builtin("inventory").expect("built in");
        assert!(matches!(script.at_end, AtEnd::LoopFrom { .. }));
        assert!(script.flavor.is_some() && script.system_prompt.is_some() && script.task.is_some());
        assert!(script.steps.iter().all(|step| !step.tool_calls.is_empty()));
        assert!(builtin("nothing").is_none());
    }
}
