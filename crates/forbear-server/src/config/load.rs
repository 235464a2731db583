//! From a file to a configuration that may be used, or to everything that is wrong with it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forbear_core::policy::{Compiled, Fault, FaultKind, Policy, check};
use miette::NamedSource;
use serde::Serialize;
use serde_json::Value as Json;

use super::built_in::{contracts, defaults};
use super::fault::{Code, ConfigErrors, ConfigFault};
use super::merge::{BadBase, merge};
use super::merged_schema;
use super::own_address;
use super::settings::{LogFormat, Settings};
use super::shape::Shape;
use super::suggest::{listed, nearest};
use super::tree::{self, Node, Value};

/// A file's length. What ships has 20 KiB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What the command line says, over file and defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    pub listen: Option<SocketAddr>,
    pub data_dir: Option<PathBuf>,
    pub log: Option<LogFormat>,
}

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Config {
    #[serde(flatten)]
    pub settings: Settings,
    #[serde(flatten)]
    pub policy: Policy,
}

/// A configuration that may be used.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub settings: Settings,
    /// The policy in force, with contracts, routes and limits ready; its `policy` member is the data.
    pub compiled: Compiled,
    /// What is allowed and yet worth a word.
    pub warnings: ConfigErrors,
    pub file: Option<PathBuf>,
    pub overrides: Overrides,
}

impl Loaded {
    #[must_use]
    pub fn config(&self) -> Config {
        Config { settings: self.settings.clone(), policy: self.compiled.policy.clone() }
    }

    /// The data directory, by flag, file or environment.
    pub fn data_dir(&self) -> Result<PathBuf, ConfigErrors> {
        self.settings.data_dir(|name| std::env::var_os(name)).ok_or_else(|| {
            ConfigErrors::new(vec![ConfigFault::new(
                Code::FB1020,
                &["data_dir".into()],
                "nothing says where the data belongs: neither XDG_DATA_HOME nor HOME is set",
                "name a directory with --data, or with data_dir in the configuration",
            )])
        })
    }
}

/// Load a file, or the defaults where there is none, under what the command line says.
pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Loaded, ConfigErrors> {
    load_at(path, overrides, overrides.listen)
}

/// Load a file once more, for a server that listens already.
pub fn load_again(path: &Path, overrides: &Overrides, listening: SocketAddr) -> Result<Loaded, ConfigErrors> {
    load_at(Some(path), overrides, Some(listening))
}

fn load_at(path: Option<&Path>, overrides: &Overrides, listen: Option<SocketAddr>) -> Result<Loaded, ConfigErrors> {
    let mut loaded = match path {
        None => load_for("(no file)", "", listen)?,
        Some(path) => load_for(&path.display().to_string(), &read(path)?, listen)?,
    };
    loaded.file = path.map(Path::to_path_buf);
    loaded.overrides = overrides.clone();
    let settings = &mut loaded.settings;
    settings.listen = overrides.listen.unwrap_or(settings.listen);
    settings.log = overrides.log.unwrap_or(settings.log);
    settings.data_dir = overrides.data_dir.clone().or_else(|| settings.data_dir.take());
    Ok(loaded)
}

/// Load a configuration from its text; `name` is what messages call the file.
pub fn load_text(name: &str, text: &str) -> Result<Loaded, ConfigErrors> {
    load_for(name, text, None)
}

/// For a server that may listen elsewhere than the text says.
fn load_for(name: &str, text: &str, listen: Option<SocketAddr>) -> Result<Loaded, ConfigErrors> {
    let mut reader = Reader { listen, ..Reader::new(name, text) };
    let Some((settings, policy)) = reader.read(text) else { return Err(ConfigErrors::new(reader.faults)) };
    if reader.faults.iter().any(|f| !f.warning) {
        return Err(ConfigErrors::new(reader.faults));
    }
    match Compiled::new(policy) {
        Ok(compiled) => Ok(Loaded {
            settings,
            compiled,
            warnings: ConfigErrors::new(reader.faults),
            file: None,
            overrides: Overrides::default(),
        }),
        // Asked before, so that nothing new comes here.
        Err(faults) => {
            faults.into_iter().for_each(|f| reader.add(f, None));
            Err(ConfigErrors::new(reader.faults))
        }
    }
}

fn read(path: &Path) -> Result<String, ConfigErrors> {
    let refuse = |happened: String, hint: &str| {
        let fault = ConfigFault::new(Code::FB1001, &[], happened, hint).in_file(&path.display().to_string());
        ConfigErrors::new(vec![fault])
    };
    let unreadable =
        |e: std::io::Error| refuse(format!("the file cannot be read: {e}"), "check its name and its rights");
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > FILE_BYTES_MAX {
        let happened = format!("the file has {length} bytes; {FILE_BYTES_MAX} is the most");
        return Err(refuse(happened, "is it the right file?"));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|e| {
        let happened = format!("the file is not UTF-8: byte {} is not text", e.utf8_error().valid_up_to());
        refuse(happened, "save it as UTF-8")
    })
}

/// One reading of one file.
struct Reader {
    name: String,
    source: Arc<NamedSource<String>>,
    /// What the command line says of it.
    listen: Option<SocketAddr>,
    faults: Vec<ConfigFault>,
}

impl Reader {
    fn new(name: &str, text: &str) -> Self {
        let source = Arc::new(NamedSource::new(name, without_credentials(text)));
        Self { name: name.into(), source, listen: None, faults: Vec::new() }
    }

    fn read(&mut self, text: &str) -> Option<(Settings, Policy)> {
        let (shipped, no_contract) = match contracts() {
            Ok(both) => both,
            Err(fault) => {
                self.faults.push(*fault);
                return None;
            }
        };
        let mut root = match tree::read(text) {
            Ok(root) => root,
            Err(bad) => {
                let fault =
                    ConfigFault::new(Code::FB1002, &[], bad.said, "indentation by spaces, `key: value`, `- item`");
                self.push(fault, Some(bad.place));
                return None;
            }
        };
        let schema = merged_schema();
        let defaults = defaults(&shipped);
        let shape = Shape { schema: &schema, defaults: &defaults };
        let misfits = shape.check(&root);
        let mut left_out: Vec<Vec<String>> = misfits.iter().map(|m| m.path.clone()).collect();
        for m in misfits {
            self.push(ConfigFault::new(m.code, &m.path, m.happened, m.hint), Some(m.place));
        }
        left_out.iter().for_each(|path| prune(&mut root, path));
        left_out.extend(self.settings_that_do_not_parse(&mut root));

        let (mut whole, bad_bases) = merge(&defaults, &shipped, &no_contract, &root);
        for bad in bad_bases {
            left_out.push(vec!["providers".into(), bad.provider().into()]);
            let candidates = shipped.keys().copied().map(String::from).chain(keys(root.get("providers")));
            self.add(bad.fault(candidates.collect()), Some(&root));
        }
        for (path, example) in shape.missing(&whole) {
            // Parts of what was left out are missing because of it.
            if !left_out.iter().any(|l| path.starts_with(unit(l))) {
                let key = path.last().cloned().unwrap_or_default();
                let fault = ConfigFault::new(Code::FB1006, &path, format!("`{key}` is missing"), example);
                self.push(fault, root.locate(&path));
            }
            stand_in(&mut whole, &path);
            left_out.push(path);
        }
        let (settings, policy) = match split(whole) {
            Ok(both) => both,
            Err(error) => {
                // The schema comes from the types: what it lets through they take. If not, the file is refused all the same.
                if self.faults.is_empty() {
                    self.push(
                        ConfigFault::new(Code::FB1005, &[], error.to_string(), "see docs/configuration.md"),
                        None,
                    );
                }
                return None;
            }
        };
        let leads_back = own_address::check(self.listen.unwrap_or(settings.listen), &policy);
        for fault in settings.check().into_iter().chain(check(&policy)).chain(leads_back) {
            if !left_out.iter().any(|l| follows_from(&fault, l)) {
                self.add(fault, Some(&root));
            }
        }
        Some((settings, policy))
    }

    /// Values with a form of their own, which a schema cannot check: the address.
    fn settings_that_do_not_parse(&mut self, root: &mut Node) -> Option<Vec<String>> {
        let listen = root.get("listen").filter(|n| matches!(n.value, Value::Text(_)))?;
        if serde_json::from_value::<SocketAddr>(listen.to_json()).is_ok() {
            return None;
        }
        let path = vec!["listen".to_owned()];
        let happened = "this is no address with a port";
        let fault = ConfigFault::new(Code::FB1005, &path, happened, "for example `listen: 127.0.0.1:8429`");
        self.push(fault, Some(listen.place));
        prune(root, &path);
        Some(path)
    }

    fn add(&mut self, fault: Fault, root: Option<&Node>) {
        let place = root.and_then(|r| r.locate(&fault.at));
        let written = root.and_then(|r| text_at(r, &fault.at)).unwrap_or_default();
        let candidates = || fault.candidates.iter().map(String::as_str);
        let hint = match nearest(&written, candidates()) {
            Some(near) => format!("did you mean `{near}`? One of: {}", listed(candidates())),
            None if fault.kind == FaultKind::UnknownClass => format!("one of: {}", listed(candidates())),
            None => fault.hint.clone(),
        };
        let shown = ConfigFault::new(Code::of(fault.kind), &fault.at, fault.happened, hint);
        if fault.kind == FaultKind::CredentialInUrl {
            self.faults.push(shown.in_file(&self.name).at(place.unwrap_or_default(), None));
        } else {
            self.push(shown, place);
        }
    }

    fn push(&mut self, fault: ConfigFault, place: Option<tree::Place>) {
        let fault = fault.in_file(&self.name);
        self.faults.push(match place {
            Some(place) => fault.at(place, Some(&self.source)),
            None => fault,
        });
    }
}

/// The text as it may be shown: user and password of any URL are starred out, in as many bytes as they have.
fn without_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut left = text;
    while let Some(at) = left.find("://") {
        let (before, rest) = left.split_at(at + 3);
        shown.push_str(before);
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | ','));
        let secret = rest[..end.unwrap_or(rest.len())].rfind('@').unwrap_or(0);
        shown.extend(std::iter::repeat_n('*', secret));
        left = &rest[secret..];
    }
    shown.push_str(left);
    shown
}

impl BadBase {
    fn provider(&self) -> &str {
        match self {
            Self::Unknown { provider, .. } | Self::Circle { provider } => provider,
        }
    }

    fn fault(&self, candidates: Vec<String>) -> Fault {
        let (kind, happened, hint, candidates) = match self {
            Self::Unknown { base, .. } => {
                (FaultKind::UnknownClass, format!("there is no provider `{base}` to extend"), "", candidates)
            }
            Self::Circle { .. } => (
                FaultKind::Contradiction,
                "this provider extends itself, over others or at once".to_owned(),
                "end the chain at a built-in provider, or at one that extends nothing",
                Vec::new(),
            ),
        };
        let at = vec!["providers".into(), self.provider().into(), "extends".into()];
        Fault { at, kind, happened, hint: hint.into(), candidates }
    }
}

/// Whether a fault is only there because something else was left out.
fn follows_from(fault: &Fault, left_out: &[String]) -> bool {
    let class = |l: &[String]| l.first().is_some_and(|f| f == "request_classes").then(|| l.get(1).cloned()).flatten();
    fault.at.starts_with(unit(left_out))
        || (fault.kind == FaultKind::UnknownClass
            && class(left_out).is_some_and(|class| fault.happened == format!("there is no class `{class}`")))
}

/// What is left out as a whole when something in it is wrong: a key of the top, a class, a provider, a key of a section.
fn unit(path: &[String]) -> &[String] {
    &path[..path.len().min(2)]
}

fn prune(root: &mut Node, path: &[String]) {
    let mut node = root;
    let Some((last, parents)) = unit(path).split_last() else {
        node.value = Value::Nothing;
        return;
    };
    for step in parents {
        let Value::Map(entries) = &mut node.value else { return };
        let Some(entry) = entries.iter_mut().rev().find(|e| &e.key == step) else { return };
        node = &mut entry.node;
    }
    if let Value::Map(entries) = &mut node.value {
        entries.retain(|e| &e.key != last);
    }
}

/// Something of the right kind for a key that is missing, so that the rest can still be checked.
fn stand_in(whole: &mut Json, path: &[String]) {
    let Some((key, parents)) = path.split_last() else { return };
    let value = match key.as_str() {
        "max_attempts" | "max_wait_seconds" | "retention_seconds" | "visible_within_seconds" => Json::from(1),
        "retry_statuses" => Json::Array(Vec::new()),
        "means" => "rejected".into(),
        "reads" => "limit".into(),
        "by" => "key".into(),
        _ => "x".into(),
    };
    let mut at = whole;
    for step in parents {
        let next = match at {
            Json::Array(items) => step.parse::<usize>().ok().and_then(|i| items.get_mut(i)),
            other => other.get_mut(step),
        };
        let Some(next) = next else { return };
        at = next;
    }
    at[key] = value;
}

fn keys(node: Option<&Node>) -> Vec<String> {
    match node.map(|n| &n.value) {
        Some(Value::Map(entries)) => entries.iter().map(|e| e.key.clone()).collect(),
        _ => Vec::new(),
    }
}

fn text_at(root: &Node, path: &[String]) -> Option<String> {
    let mut node = root;
    for step in path {
        node = match &node.value {
            Value::List(items) => items.get(step.parse::<usize>().ok()?)?,
            _ => node.get(step)?,
        };
    }
    match &node.value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

/// The file's one level of keys, taken apart again.
fn split(whole: Json) -> serde_json::Result<(Settings, Policy)> {
    let settings = serde_json::to_value(Settings::default())?;
    let Json::Object(members) = whole else { return Ok((Settings::default(), Policy::default())) };
    let (settings, policy) = members.into_iter().partition(|(key, _)| settings.get(key).is_some());
    Ok((serde_json::from_value(Json::Object(settings))?, serde_json::from_value(Json::Object(policy))?))
}
