//! Every example in the documents is read by the code that reads the real file.

use handoff_gateway::Policy as GatewayPolicy;

use super::Settings;

const REFERENCE: &str = include_str!("../../../../docs/configuration.md");
const README: &str = include_str!("../../../../README.md");

/// The TOML blocks of a document that begin with the name of this file.
fn examples<'a>(document: &'a str, file: &str) -> Vec<&'a str> {
    let head = format!("# {file}\n");
    let blocks = document.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    blocks.filter(|block| block.starts_with(&head)).collect()
}

#[test]
fn documented_settings_are_read() {
    let found = examples(REFERENCE, "config.toml");
    assert_eq!(found.len(), 2);
    for text in found {
        let settings: Settings = toml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!(settings.policy().tier(&"sandbox-small".into()).is_some());
    }
}

#[test]
fn documented_times_are_the_defaults() {
    let settings: Settings = toml::from_str(examples(REFERENCE, "config.toml")[0]).expect("just read");
    assert_eq!(settings.policy(), Settings::default().policy());
}

#[test]
fn documented_gateway_policies_are_read() {
    let found = [examples(REFERENCE, "gateway.toml"), examples(README, "gateway.toml")].concat();
    assert_eq!(found.len(), 3);
    for text in found {
        GatewayPolicy::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
}

#[test]
fn documented_limits_are_the_defaults() {
    let limits = GatewayPolicy::parse(examples(REFERENCE, "gateway.toml")[1]).expect("just read");
    assert_eq!(limits.limits(), GatewayPolicy::parse("").expect("empty is allowed").limits());
}
