//! Literal credentials in the list of tool servers, where only references belong. Nothing there is prose, so less is
//! enough to refuse it: a short body after a known prefix, a value under a secret's name, a word that looks random.

use handoff_protocol::document::McpServer;

use super::{KNOWN, Known, SecretKind, is_word, scan};

/// Where in the list of tool servers a literal credential stands, if one does.
pub(crate) fn in_servers(servers: &[McpServer]) -> Option<(String, SecretKind)> {
    servers.iter().enumerate().find_map(|(index, server)| {
        let at = |field: &str| format!("mcp_config[{index}].{field}");
        let whole = |text: &str, field: &str| literal(text).map(|kind| (at(field), kind));
        whole(&server.server, "server")
            .or_else(|| server.cred_ref.as_ref().and_then(|found| whole(found.as_str(), "cred_ref")))
            .or_else(|| server.url.as_ref().and_then(|url| in_url(url).map(|kind| (at("url"), kind))))
            .or_else(|| {
                in_command(&server.command).map(|(word, kind)| (at(&format!("command[{word}]")), kind))
            })
    })
}

/// A shorter body is enough here than in prose: nothing in this list is prose.
fn literal(text: &str) -> Option<SecretKind> {
    if let Some(found) = scan(text.as_bytes()).first() {
        return Some(found.kind);
    }
    let words = text.split(|found: char| !found.is_ascii() || !is_word(found as u8));
    words
        .into_iter()
        .find_map(|word| {
            let short = |known: &&Known| {
                let prefix = std::str::from_utf8(known.prefix).expect("ASCII");
                word.strip_prefix(prefix).is_some_and(|body| body.len() >= 4)
            };
            KNOWN
                .iter()
                .filter(|known| known.prefix.ends_with(b"-") || known.prefix.ends_with(b"_"))
                .find(short)
        })
        .map(|known| known.kind)
}

fn in_url(url: &str) -> Option<SecretKind> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if let Some((user, _)) = authority.rsplit_once('@')
        && (user.split_once(':').is_some_and(|(_, password)| !is_placeholder(password)) || is_random(user))
    {
        return Some(SecretKind::Password);
    }
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split(['&', '#']).filter_map(|pair| pair.split_once('='));
    let named = pairs.into_iter().any(|(name, value)| names_a_secret(name) && !is_placeholder(value));
    if named {
        return Some(SecretKind::NamedValue);
    }
    literal(url)
        .or_else(|| rest.split(['/', '?', '&', '=', '#']).any(is_random).then_some(SecretKind::RandomValue))
}

fn in_command(command: &[String]) -> Option<(usize, SecretKind)> {
    let mut expects_secret = false;
    for (index, word) in command.iter().enumerate() {
        if expects_secret && !word.starts_with('-') && !is_placeholder(word) {
            return Some((index, SecretKind::NamedValue));
        }
        let (name, value) =
            word.split_once(['=', ':']).map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        let secret_name = names_a_secret(name);
        if secret_name && value.is_some_and(|value| !is_placeholder(value)) {
            return Some((index, SecretKind::NamedValue));
        }
        expects_secret = index > 0 && secret_name && value.is_none() && name.starts_with('-');
        let kind = if word.contains("://") { in_url(word) } else { literal(word) };
        let random = || word.split(['=', ':', ' ', ',']).any(is_random).then_some(SecretKind::RandomValue);
        if let Some(kind) = kind.or_else(random) {
            return Some((index, kind));
        }
    }
    None
}

fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let name = name.trim_start_matches('_');
    [
        "api_key",
        "apikey",
        "token",
        "secret",
        "password",
        "passwd",
        "authorization",
        "access_key",
        "private_key",
    ]
    .iter()
    .any(|word| name == *word || name.ends_with(&format!("_{word}")) || name == format!("x_{word}"))
}

/// A place where a value will be put, and no value.
fn is_placeholder(value: &str) -> bool {
    let value = value.trim();
    let value =
        ["Bearer ", "Basic ", "token "].iter().find_map(|scheme| value.strip_prefix(scheme)).unwrap_or(value);
    let referenced = ["vault://", "env://", "file://"].iter().any(|scheme| value.starts_with(scheme));
    let variable = value.starts_with(['$', '%', '<', '{']);
    let masked = value.chars().all(|letter| matches!(letter, '*' | 'x' | 'X' | '.'));
    let setting = value == "true"
        || value == "false"
        || (value.len() <= 6 && value.bytes().all(|byte| byte.is_ascii_digit()));
    value.is_empty() || variable || referenced || masked || setting
}

/// Long, of letters of both cases and digits, and with the entropy of random text. Digests and UUIDs are
/// names, and have one case.
fn is_random(word: &str) -> bool {
    let plausible = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/');
    let word = word.trim_end_matches('=');
    let (has_path, length) = (word.contains("/"), word.len());
    if length < 24 || has_path || !word.bytes().all(plausible) {
        return false;
    }
    let mixed = [u8::is_ascii_lowercase as fn(&u8) -> bool, u8::is_ascii_uppercase, u8::is_ascii_digit];
    mixed.iter().all(|class| word.as_bytes().iter().any(class)) && distinct(word) * 2 >= length.min(48)
}

/// Distinct characters: for words of these lengths as good a measure of randomness as the entropy.
fn distinct(word: &str) -> usize {
    let mut seen = [false; 128];
    word.bytes().for_each(|byte| seen[usize::from(byte & 127)] = true);
    seen.iter().filter(|seen| **seen).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(command: &[&str], url: Option<&str>) -> McpServer {
        McpServer {
            server: "files".to_owned(),
            cred_ref: None,
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            url: url.map(str::to_owned),
            optional: false,
        }
    }

    #[test]
    fn literals_in_tool_servers_are_named_and_never_shown() {
        let random = "q7Zt0Lm4Vx9Kb2Rw6Yh1Nc8P";
        let cases: [(McpServer, &str); 9] = [
            // Put together here, so that no scanner takes this file for a leak.
            (server(&["x", "--key", &["sk-", "live-1234"].concat()], None), "command[2]"),
            (server(&["x", "--token", "hunter2"], None), "command[2]"),
            (server(&["x", "--api-key=hunter2"], None), "command[1]"),
            (server(&["env", "GITHUB_TOKEN=hunter2", "x"], None), "command[1]"),
            (server(&["x", "-H", "Authorization: Bearer hunter2"], None), "command[2]"),
            (server(&["x", random], None), "command[1]"),
            (server(&["x", "postgres://user:hunter2@db/x"], None), "command[1]"),
            (server(&[], Some("https://user:hunter2@host/mcp")), "url"),
            (server(&[], Some("https://host/mcp?api_key=hunter2")), "url"),
        ];
        for (server, place) in cases {
            let (at, _) = in_servers(std::slice::from_ref(&server)).unwrap_or_else(|| panic!("{server:?}"));
            assert_eq!(at, format!("mcp_config[0].{place}"));
        }
    }

    #[test]
    fn references_placeholders_and_ordinary_commands_pass() {
        let digest = handoff_protocol::Digest::of(b"x");
        let image = format!("registry/files@{digest}");
        let servers = [
            server(&["npx", "-y", "@scope/server-filesystem@1.2.3", "/home/user/Documents/Project1"], None),
            server(&["docker", "run", "-i", "--rm", "-e", "GITHUB_TOKEN", &image], None),
            server(
                &["x", "--api-key", "${API_KEY}", "--token=env://local/TOKEN", "--max-tokens", "4096"],
                None,
            ),
            server(&["x", "-H", "Authorization: Bearer $TOKEN", "--max-token", "100"], None),
            server(
                &["uvx", "--from", "git+https://host/repo@0123456789abcdef0123456789abcdef01234567", "x"],
                None,
            ),
            server(&[], Some("https://user@host:8443/v1/mcp?version=2")),
        ];
        assert_eq!(in_servers(&servers), None);
    }
}
