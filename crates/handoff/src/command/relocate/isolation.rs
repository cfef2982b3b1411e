//! A host that cannot enforce what the tier promises is refused before anything is staged.

use std::time::Instant;

use anyhow::Result;
use handoff_client::Client;
use handoff_protocol::listing::NodeView;
use handoff_protocol::node::DEGRADED_START;
use handoff_protocol::{ErrorCode, Problem};

use super::moving::NODE_WITHIN;
use crate::cli::Source;
use crate::config::Home;

/// Looks at every node that the session may come to. One that has just been started is waited for.
pub async fn check(home: &Home, client: &Client, source: &Source) -> Result<()> {
    let deadline = Instant::now() + NODE_WITHIN;
    loop {
        let nodes = client.nodes().await?.nodes;
        if !nodes.is_empty() || Instant::now() > deadline {
            return Ok(judge(home, &nodes, source)?);
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

fn judge(home: &Home, nodes: &[NodeView], source: &Source) -> Result<(), Problem> {
    let eligible = |node: &&NodeView| source.node.is_none_or(|wanted| wanted == node.node_id);
    let eligible: Vec<&NodeView> = nodes.iter().filter(eligible).collect();
    if eligible.is_empty() {
        let names: Vec<String> =
            nodes.iter().map(|node| format!("{} ({})", node.node_id, node.name)).collect();
        let hint = if names.is_empty() {
            format!("see {}", home.log().join("node.log").display())
        } else {
            format!("there are {}", names.join(", "))
        };
        return Err(Problem::new(ErrorCode::NoNode, "no such node has registered", hint));
    }
    let lost: Vec<String> = eligible.iter().flat_map(|node| losses(node)).collect();
    if lost.is_empty() {
        return Ok(());
    }
    let refuse =
        |message: String, hint: String| Err(Problem::new(ErrorCode::IsolationUnavailable, message, hint));
    if !source.allow_degraded {
        let whole: Vec<String> = eligible
            .iter()
            .filter(|node| losses(node).is_empty())
            .map(|node| node.node_id.to_string())
            .collect();
        if !whole.is_empty() {
            let message = "some nodes cannot enforce all that a sandbox promises, and any may be chosen";
            let hint = format!("name one that can: --node {}", whole.join(" or --node "));
            return refuse(message.to_owned(), hint);
        }
        let message = format!("no node enforces all that a sandbox promises; lost: {}", lost.join(", "));
        let hint = "run as root or on a host with cgroups, or accept the loss with --allow-degraded";
        return refuse(message, hint.to_owned());
    }
    let forbids = eligible.iter().find(|node| node.isolation.contains_key(DEGRADED_START));
    match forbids {
        None => Ok(()),
        Some(node) => {
            let message = format!(
                "the settings of node {} forbid a sandbox without: {}",
                node.name,
                losses(node).join(", ")
            );
            let hint = format!(
                "its operator allows it by `allow_degraded = true` under [node] in {}; the node reads that when it \
                 starts: `kill $(cat {})` makes it start again",
                home.settings().display(),
                home.lock("node").display()
            );
            refuse(message, hint)
        }
    }
}

/// What a node cannot enforce, and why.
fn losses(node: &NodeView) -> Vec<String> {
    let lost = node.isolation.iter().filter(|(what, how)| *what != DEGRADED_START && how.starts_with("lost"));
    lost.map(|(what, how)| format!("{what} ({how})")).collect()
}

#[cfg(test)]
mod tests {
    use handoff_protocol::node::Capacity;
    use handoff_protocol::{NodeId, Timestamp};

    use super::*;

    fn node(id: u128, isolation: &[(&str, &str)]) -> NodeView {
        NodeView {
            node_id: NodeId::from_u128(id),
            name: format!("n{id}"),
            capacity: Capacity { cpu_millis: 1, memory_bytes: 1 },
            free: None,
            isolation: isolation.iter().map(|(what, how)| ((*what).into(), (*how).into())).collect(),
            seen_at: Timestamp::from_unix_ms(0),
        }
    }

    fn asked(node: Option<u128>, allow_degraded: bool) -> Source {
        let node = node.map(NodeId::from_u128);
        Source {
            agent: None,
            tier: "sandbox-small".into(),
            budget: handoff_protocol::NanoUsd::ZERO,
            node,
            allow_degraded,
        }
    }

    #[test]
    fn every_node_that_may_be_chosen_counts() {
        let home = Home::find(Some("/h".into())).expect("named");
        let whole = node(1, &[("memory", "cgroup")]);
        let lossy = node(2, &[("memory", "lost: no cgroup")]);
        let strict = node(3, &[("memory", "lost: no cgroup"), (DEGRADED_START, "refused")]);
        let all = [whole, lossy, strict];
        let said = |nodes: &[NodeView], asked: &Source| match judge(&home, nodes, asked) {
            Ok(()) => String::new(),
            Err(problem) => format!("{} {} → {}", problem.code, problem.message, problem.hint),
        };
        assert_eq!(said(&all, &asked(Some(1), false)), "");
        assert_eq!(said(&all[..1], &asked(None, false)), "");
        assert_eq!(said(&all[..2], &asked(None, true)), "");
        for (nodes, asked, expected) in [
            (&all[..2], asked(None, false), "--node nod_"),
            (&all[1..2], asked(None, false), "--allow-degraded"),
            (&all[..], asked(Some(2), false), "memory (lost: no cgroup)"),
            (&all[..], asked(None, true), "/h/config.toml"),
            (&all[..], asked(Some(3), true), "forbid"),
            (&all[..], asked(Some(9), true), "no_node no such node has registered → there are nod_"),
            (&[], asked(None, true), "node.log"),
        ] {
            let said = said(nodes, &asked);
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }
}
