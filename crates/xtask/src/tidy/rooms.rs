//! The one table of who may know whom. The rules `crate-graph` and `core-is-pure` read it; to change the
//! architecture, change it here and in `ARCHITECTURE.md`.

/// A crate and its place in the graph.
pub(super) struct Room {
    /// The crate, which is also its folder.
    pub(super) name: &'static str,
    /// Which of our crates may be part of it. Tests may see more.
    pub(super) may_know: &'static [&'static str],
    /// Which libraries it must never see, because it has no business with what they do.
    pub(super) must_never_know: &'static [&'static str],
}

/// What reads clocks, draws random numbers, does I/O or runs tasks.
const EFFECTS: &[&str] = &[
    "axum",
    "futures-util",
    "getrandom",
    "hyper",
    "hyper-util",
    "rand",
    "reqwest",
    "rusqlite",
    "rustix",
    "tokio",
    "tokio-util",
];
const HTTP_AND_SANDBOXES: &[&str] =
    &["axum", "hyper", "hyper-util", "reqwest", "landlock", "seccompiler", "caps"];
const NOTHING: &[&str] = &[];

/// Every crate of the workspace.
pub(super) const ROOMS: &[Room] = &[
    Room { name: "handoff-protocol", may_know: &[], must_never_know: EFFECTS },
    Room { name: "handoff-core", may_know: &["handoff-protocol"], must_never_know: EFFECTS },
    Room {
        name: "handoff-store",
        may_know: &["handoff-protocol", "handoff-core"],
        must_never_know: HTTP_AND_SANDBOXES,
    },
    Room { name: "handoff-snapshot", may_know: &["handoff-protocol"], must_never_know: &["axum"] },
    Room { name: "handoff-client", may_know: &["handoff-protocol"], must_never_know: &["axum"] },
    Room { name: "handoff-agent", may_know: &["handoff-protocol"], must_never_know: &["axum"] },
    Room {
        name: "handoff-adapters",
        may_know: &["handoff-protocol", "handoff-snapshot"],
        must_never_know: &["axum"],
    },
    Room {
        name: "handoff-gateway",
        may_know: &["handoff-protocol", "handoff-core"],
        must_never_know: &["axum"],
    },
    Room {
        name: "handoff-sandbox",
        may_know: &["handoff-protocol"],
        must_never_know: &["axum", "hyper", "reqwest"],
    },
    Room {
        name: "handoff-node",
        may_know: &[
            "handoff-protocol",
            "handoff-client",
            "handoff-snapshot",
            "handoff-adapters",
            "handoff-gateway",
            "handoff-sandbox",
            "handoff-agent",
        ],
        must_never_know: &["axum"],
    },
    Room {
        name: "handoff-service",
        may_know: &["handoff-protocol", "handoff-core", "handoff-snapshot"],
        must_never_know: &["axum", "hyper", "rmcp"],
    },
    Room {
        name: "handoff-server",
        may_know: &["handoff-protocol", "handoff-client", "handoff-service"],
        must_never_know: NOTHING,
    },
    Room { name: "handoff-scripted-model", may_know: &["handoff-protocol"], must_never_know: &["axum"] },
    Room {
        name: "handoff-testkit",
        may_know: &["handoff-protocol", "handoff-core"],
        must_never_know: NOTHING,
    },
    Room {
        name: "handoff",
        may_know: &[
            "handoff-protocol",
            "handoff-core",
            "handoff-store",
            "handoff-snapshot",
            "handoff-client",
            "handoff-agent",
            "handoff-adapters",
            "handoff-gateway",
            "handoff-sandbox",
            "handoff-node",
            "handoff-service",
            "handoff-server",
            "handoff-scripted-model",
        ],
        must_never_know: &["axum"],
    },
    Room { name: "xtask", may_know: &["handoff-protocol", "handoff-core"], must_never_know: NOTHING },
];

/// Libraries that only these crates may see, in tests too.
pub(super) const RESERVED: &[(&str, &[&str])] = &[
    ("rusqlite", &["handoff-store"]),
    ("refinery", &["handoff-store"]),
    ("tokio-postgres", &["handoff-store"]),
    ("deadpool-postgres", &["handoff-store"]),
    ("axum", &["handoff-server"]),
    ("rmcp", &["handoff-server", "handoff-agent"]),
    ("landlock", &["handoff-sandbox"]),
    ("seccompiler", &["handoff-sandbox"]),
    ("caps", &["handoff-sandbox"]),
    ("clap", &["handoff", "xtask"]),
    ("anyhow", &["handoff", "xtask"]),
];

/// Libraries that nobody may see, and why.
pub(super) const BANNED: &[(&str, &str)] = &[
    (
        "sqlx",
        "a cancelled begin() can leave a transaction open on a pooled connection; use the store's own driver",
    ),
    ("openssl", "TLS is rustls with ring"),
    ("native-tls", "TLS is rustls with ring"),
    ("aws-lc-rs", "TLS is rustls with ring; choose features without aws-lc"),
];

/// The core's feature for the model checker.
pub(super) const NEVER_SHIPPED: &str = "mutants";

/// Crates in which money is handled: no floating point there.
pub(super) const NO_FLOATS: &[&str] =
    &["handoff-protocol", "handoff-core", "handoff-store", "handoff-service", "handoff-gateway"];

/// The one crate with `unsafe`, which therefore has lints of its own.
pub(super) const UNSAFE: &str = "handoff-sandbox";

/// Crates without clocks, randomness, environment or I/O. The core, besides, iterates nothing unordered.
pub(super) const PURE: &[&str] = &["handoff-core", "handoff-protocol"];
