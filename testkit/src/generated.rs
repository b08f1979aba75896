//! The files of the repository that repeat something else: the settings, the values that both
//! charts share, the permissions, the dashboard, the alerts. `tests/generate` writes them; a test of the ring `docs`
//! checks that none is stale.

use serde_json::{Value, json};
use tenure::config::variables::{Use, VARIABLES, Variables};
use tenure::config::{Kind, SETTINGS, Setting, UnderExec, Verb};
use tenure::kube::rights::{Purpose, RIGHTS, Right};

use crate::paths::repository;

const README: &str = "README.md";
const OTHERS: &str = "docs/variables.md";
const PERMISSIONS: &str = "docs/kubernetes/rbac.md";
const VALUES: [&str; 2] = ["helm/tenure-lib/values.yaml", "helm/tenure/values.yaml"];
const SCHEMAS: [&str; 2] = ["helm/tenure-lib/values.schema.json", "helm/tenure/values.schema.json"];
const DASHBOARD: &str = "monitoring/dashboard.json";
const RULES: &str = "monitoring/rules.yaml";

/// Returns the paths of the generated files that have another content than they should, with that
/// content.
pub fn stale() -> Vec<(&'static str, String)> {
    let values = between(VALUES[0], "settings", &values());
    let shared = &values[values.find("# -- Name of the chart").expect("its first value")..];
    let schema = replaced(&read(SCHEMAS[0]), "election", &schema());
    let files = [
        (README, between(README, "settings", &readme())),
        (OTHERS, between(OTHERS, "variables", &variables())),
        (PERMISSIONS, between(PERMISSIONS, "permissions", &permissions())),
        (VALUES[1], between(VALUES[1], "sidecar", shared)),
        (VALUES[0], values),
        (SCHEMAS[1], schema_of_chart(&schema)),
        (SCHEMAS[0], schema),
        ("helm/tenure/files/rules.yaml", read(RULES)),
        ("helm/tenure/files/dashboard.json", read(DASHBOARD)),
        ("deploy/components/monitoring/dashboard.json", read(DASHBOARD)),
        ("deploy/components/monitoring/prometheusrule.yaml", prometheus_rule(&read(RULES))),
    ];
    files.into_iter().filter(|(path, content)| read(path) != *content).collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|it| panic!("{path}: {it}"))
}

/// Returns a file with `content` between its lines with `BEGIN generated: NAME` and
/// `END generated: NAME`.
fn between(path: &str, name: &str, content: &str) -> String {
    let text = read(path);
    let find = |marker: &str| {
        let marker = format!("{marker} generated: {name}");
        text.find(&marker).unwrap_or_else(|| panic!("{path} has no line with {marker}"))
    };
    let (begin, end) = (find("BEGIN"), find("END"));
    let begin = begin + text[begin..].find('\n').expect("a line") + 1;
    let end = text[..end].rfind('\n').expect("a line") + 1;
    [&text[..begin], content, &text[end..]].concat()
}

// --- the settings in README.md -----------------------------------------------------------------

fn readme() -> String {
    let row = |it: &Setting| {
        let default = match (it.default, it.under_exec) {
            _ if it.kind == Kind::Switch && it.otherwise.is_empty() => "off".to_owned(),
            (Some(run), UnderExec::Default(exec)) => format!("`{run}`; `exec`: `{exec}`"),
            (Some(only), UnderExec::Alone) => format!("`{only}`; `exec` only"),
            (Some(default), UnderExec::Same) => format!("`{default}`"),
            (None, _) if it.otherwise.is_empty() => "none".to_owned(),
            (None, _) => it.otherwise.to_owned(),
        };
        let repeatable = if it.is_list { "; repeatable" } else { "" };
        format!("| `{}` | {default} | {}{repeatable} |\n", it.name, it.help)
    };
    let rows = SETTINGS.iter().map(row).collect::<String>();
    format!("| setting | default | meaning |\n|---|---|---|\n{rows}")
}

// --- the variables of other clients in docs/variables.md ------------------------------------------

fn variables() -> String {
    let row = |store: &str, (name, of): &(&str, Use)| {
        let meaning = match of {
            Use::Read(what) => format!("used: {what}"),
            Use::Instead(remedy) => format!("not used, with a warning: {remedy}"),
            Use::Nothing => "not used: no lease depends on it".to_owned(),
        };
        format!("| `{store}:` | `{name}` | {meaning} |\n")
    };
    let rows = |it: &Variables| it.all.iter().map(|of| row(it.store, of)).collect::<String>();
    let clients = |it: &Variables| format!("{} for `{}:`", it.clients, it.store);
    let clients = VARIABLES.iter().map(clients).collect::<Vec<_>>().join(", ");
    let table = VARIABLES.iter().map(rows).collect::<String>();
    format!("Clients: {clients}.\n\n| store | variable | Tenure |\n|---|---|---|\n{table}")
}

// --- the permissions in docs/kubernetes/rbac.md -------------------------------------------------

fn permissions() -> String {
    let row = |it: &Right| {
        let purpose = match it.purpose {
            Purpose::Store => "`--store kubernetes:`",
            Purpose::Label => "`--kube-route label`",
            Purpose::EndpointSlice => "`--kube-route endpointslice`",
            Purpose::Events => "Events",
        };
        let optional = if it.needed { "" } else { ", optional" };
        let (group, plural) = (it.resource.group, it.resource.plural);
        let group = if group.is_empty() { "\"\"" } else { group };
        let named = match (it.named, plural) {
            (false, _) => "no",
            (true, "services") => "yes, the Service",
            (true, "endpointslices") => "yes, `SERVICE.ELECTION`",
            (true, _) => "yes",
        };
        let (verb, why) = (it.verb, it.why);
        format!("| `{group}` | `{plural}` | `{verb}` | {purpose}{optional} | {named} | {why} |\n")
    };
    format!(
        "| API group | resource | verb | for | can be narrowed to one name | why |\n\
         |---|---|---|---|---|---|\n{}",
        RIGHTS.iter().map(row).collect::<String>()
    )
}

// --- the settings in the charts ----------------------------------------------------------------

/// What differs in the charts: the setting, its default as YAML, the pattern of its values, a
/// remark. What is empty does not differ.
const IN_CHARTS: &[(&str, &str, &str, &str)] = &[
    ("election", "null", "", "Null: NAME, see `fullnameOverride`"),
    ("advertise", "", "", "For example `$(POD_IP):8080`; the chart brackets `$(POD_IP)`"),
    (
        "store",
        "",
        "^(kubernetes|azure|consul|etcd|mongodb|postgres|redis|[a-z][a-z0-9]*:.*)$",
        "Null: the value `store` of the chart",
    ),
    ("azure-blob-prefix", "", "^[A-Za-z0-9._/-]*$", BLOB_PREFIX),
    ("kube-route", "", "", "Set by `routing.mode`; other values are rejected"),
    ("kube-service", "", "", NAME_OF_SERVICE),
    ("listen", "[\"[::]:4040\"]", "", REACHABLE),
    (
        "status-file",
        "",
        r"^/run/tenure/.+\.(json|env)$",
        "In /run/tenure, mounted in your container too",
    ),
    (
        "admin",
        "unix:/run/tenure/admin.sock",
        "",
        "For `kubectl exec POD -c tenure -- /tenure pause`",
    ),
    ("peers", "null", "", "Null: on for `azure`, whose store cannot notify, else off"),
    // Without quotes it would be a boolean.
    ("preempt-after", "\"off\"", "", ""),
    ("peer-address", "", PEER_ADDRESS, "For example `[$(POD_IP)]:4040`"),
    // Without quotes it is a boolean.
    ("preempt-after", "\"off\"", "", ""),
    (
        "drain-timeout",
        "",
        "",
        "A native sidecar waits for this time after your service has stopped",
    ),
    (
        "config",
        "",
        r"^/.+\.(toml|ya?ml)$",
        "Mounted by `sidecar.volumeMounts`; values here override it",
    ),
];
/// An address, or the variable of one.
const PEER_ADDRESS: &str = r"^(\[[0-9a-fA-F.:]+\]|[0-9.]+|\[?\$\(POD_IP\)\]?):[0-9]{1,5}$";
const BLOB_PREFIX: &str = "Null: the namespace; \"\": none. Equal releases in equal namespaces of two \
                           clusters are one election, unless it has the cluster's name: \
                           `CLUSTER/NAMESPACE`";
const NAME_OF_SERVICE: &str = "The name of its Service with routing.mode label, too. Null: NAME-leader-ip, and with label NAME-leader";
const REACHABLE: &str = "The kubelet must be able to reach one address, and your container 127.0.0.1 \
                         on the same port; [::] means all addresses, and all IPv4 addresses if the node \
                         has no IPv6";

/// Durations, as Tenure parses them: each unit at most once, largest first, with fractions.
const DURATION: &str = concat!(
    r"^([0-9]+([.][0-9]+)?h([0-9]+([.][0-9]+)?m)?([0-9]+([.][0-9]{1,3})?s)?([0-9]+ms)?",
    r"|[0-9]+([.][0-9]+)?m([0-9]+([.][0-9]{1,3})?s)?([0-9]+ms)?",
    r"|[0-9]+([.][0-9]{1,3})?s([0-9]+ms)?|[0-9]+ms)$",
);

/// A setting as a value of the charts.
struct InChart {
    setting: &'static Setting,
    /// Its default as YAML.
    default: &'static str,
    pattern: &'static str,
    remark: &'static str,
}

fn in_charts() -> impl Iterator<Item = InChart> {
    SETTINGS.iter().filter(|it| it.is_flag_of(Verb::Run)).map(|setting| {
        let own = IN_CHARTS.iter().find(|it| it.0 == setting.name);
        let &(_, default, pattern, remark) = own.unwrap_or(&("", "", "", ""));
        let usual_default = setting.default.unwrap_or(if setting.is_list { "[]" } else { "null" });
        let usual_pattern = match setting.kind {
            Kind::Text(_, pattern) => pattern,
            Kind::Duration => DURATION,
            // A path of the container, which has no working directory of its own.
            Kind::Path => "^/",
            Kind::Switch | Kind::Count | Kind::Percent | Kind::Choice(..) => "",
        };
        let or = |it: &'static str, usual| if it.is_empty() { usual } else { it };
        let (default, pattern) = (or(default, usual_default), or(pattern, usual_pattern));
        InChart { setting, default, pattern, remark }
    })
}

/// Returns the name of a setting in camelCase.
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

/// Returns the `election` of the values, each setting with a comment.
fn values() -> String {
    let value = |InChart { setting, default, remark, .. }: InChart| {
        let mut comment = format!("{}.", setting.help);
        if !remark.is_empty() {
            comment += &format!(" {remark}.");
        } else if !setting.otherwise.is_empty() {
            comment += &format!(" Null: {}.", setting.otherwise);
        }
        for other in SETTINGS {
            let name = camel_case(other.name);
            comment = comment.replace(&format!("`{}`", other.name), &format!("`{name}`"));
        }
        let mut text = String::new();
        let mut line = "  # --".to_owned();
        for word in comment.split(' ') {
            if line.chars().count() + 1 + word.chars().count() > 108 {
                text += &format!("{line}\n");
                line = "  #".to_owned();
            }
            line += &format!(" {word}");
        }
        format!("{text}{line}\n  {}: {default}\n", camel_case(setting.name))
    };
    in_charts().map(value).collect()
}

/// Returns the `election` of the schema, a line for each setting.
fn schema() -> String {
    let line = |it: InChart| format!("        {:?}: {}", camel_case(it.setting.name), of_one(&it));
    // The one value that is none of Tenure's settings.
    let moved = "        \"moved\": {\"type\":\"boolean\"}".to_owned();
    let lines = in_charts().map(line).chain([moved]).collect::<Vec<_>>().join(
        ",
",
    );
    let required = in_charts().filter(is_required).map(|it| camel_case(it.setting.name));
    let required = json!(required.collect::<Vec<_>>());
    format!(
        "{{\n      \"type\": \"object\",\n      \"additionalProperties\": false,\n      \
         \"required\": {required},\n      \"properties\": {{\n{lines}\n      }}\n    }}"
    )
}

/// Returns whether the templates compute with the value. helm removes a value that is set to null.
fn is_required(it: &InChart) -> bool {
    let is_read = matches!(it.setting.kind, Kind::Duration)
        || ["listen", "kube-label"].contains(&it.setting.name);
    is_read && it.default != "null"
}

fn of_one(it: &InChart) -> Value {
    let mut schema = match it.setting.kind {
        Kind::Switch => json!({"type": "boolean"}),
        Kind::Count => json!({"type": "integer", "minimum": 1}),
        Kind::Percent => json!({"type": "integer", "minimum": 0, "maximum": 100}),
        Kind::Choice(_, words) => json!({"type": "string", "enum": words}),
        _ if it.pattern.is_empty() => json!({"type": "string", "minLength": 1}),
        _ => json!({"type": "string", "pattern": it.pattern}),
    };
    if it.setting.is_list {
        schema = json!({"type": "array", "items": schema});
        // A list with a default is never empty: for nothing there is a word.
        if it.setting.default.is_some() {
            schema["minItems"] = json!(1);
        }
    } else if it.default == "null" || it.setting.default.is_none() {
        schema["type"] = json!([schema["type"], "null"]);
        if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
            words.push(Value::Null);
        }
    }
    schema
}

/// Returns the chart's schema, with the properties of the library's.
fn schema_of_chart(library: &str) -> String {
    let text = read(SCHEMAS[1]);
    let parsed: Value = serde_json::from_str(library).expect("JSON");
    let keys = parsed["properties"].as_object().expect("properties").keys();
    keys.fold(text, |text, key| replaced(&text, key, property(library, key)))
}

/// Returns the schema of a property at the top level, in the text of a whole schema.
fn property<'a>(schema: &'a str, key: &str) -> &'a str {
    let begin = format!("\n    \"{key}\": ");
    let start = schema.find(&begin).unwrap_or_else(|| panic!("no property {key}")) + begin.len();
    let length = schema[start..].find("\n    }").expect("its end") + "\n    }".len();
    &schema[start..start + length]
}

/// Returns the schema with another property at the top level.
fn replaced(schema: &str, key: &str, property_of_key: &str) -> String {
    schema.replacen(
        &format!("\n    \"{key}\": {}", property(schema, key)),
        &format!("\n    \"{key}\": {property_of_key}"),
        1,
    )
}

// --- the alerts --------------------------------------------------------------------------------

/// Returns the rules as a PrometheusRule.
fn prometheus_rule(rules: &str) -> String {
    let groups = &rules[rules.find("groups:\n").expect("groups")..];
    let indented =
        |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") };
    format!(
        "# {RULES} as a PrometheusRule.\napiVersion: monitoring.coreos.com/v1\nkind: \
         PrometheusRule\nmetadata:\n  name: tenure\nspec:\n{}",
        groups.lines().map(indented).collect::<String>()
    )
}
