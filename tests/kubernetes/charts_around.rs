//! The parts of the charts other than pods: Services, permissions, budgets, policies, monitoring,
//! test and notes.

use testkit::kubernetes::{chart_values as values, manifests, rights, yaml};

use serde_json::{Value, json};

use manifests::{assert_all_valid, assert_restricted, render, run, text};
use tenure::kube::rights::Purpose;
use values::{azure, port, with};

const APPLICATION: &str = "helm/tenure";

fn route(mode: &str) -> Value {
    json!({"routing": {"mode": mode}, "container": port()})
}

#[test]
fn the_service_of_the_leader_selects_by_label_or_has_no_selector() {
    let plain = render(&route("none"));
    let names: Vec<&Value> =
        plain.each("Service").into_iter().map(|it| &it["metadata"]["name"]).collect();
    assert_eq!(names, ["orders-tenure", "orders-tenure-pods"]);

    let own = json!({"app.kubernetes.io/name": "orders", "app.kubernetes.io/instance": "orders"});
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]);
    let label = render(&with(route("label"), json!({"election": {"kubeLabel": "a.b/c"}})));
    let service = &label.the("Service", "orders-tenure-leader")["spec"];
    assert_eq!(service["selector"], with(own.clone(), json!({"a.b/c": "active"})));
    assert_eq!(service["ports"], ports);

    let slice =
        render(&with(route("endpointslice"), json!({"election": {"kubeService": "first"}})));
    let service = &slice.the("Service", "first")["spec"];
    assert!(service["selector"].is_null());
    assert_eq!(service["ports"], ports);
    assert!(slice.flags().contains(&"--kube-service=first".to_owned()));

    for rendered in [plain, label, slice] {
        assert_eq!(rendered.the("Service", "orders-tenure")["spec"]["selector"], own);
        let pods = &rendered.the("Service", "orders-tenure-pods")["spec"];
        assert_eq!(pods["clusterIP"], "None");
        assert_eq!(pods["publishNotReadyAddresses"], true);
        let labels = &rendered.workload()["spec"]["template"]["metadata"]["labels"];
        let test = &rendered.the("Pod", "orders-tenure-exactly-one")["metadata"]["labels"];
        for (key, value) in own.as_object().unwrap() {
            assert_eq!(labels[key], *value);
        }
        assert_ne!(test["app.kubernetes.io/name"], own["app.kubernetes.io/name"]);
    }
}

#[test]
fn the_service_of_the_leader_can_differ_from_that_of_all_pods() {
    let service = json!({
        "type": "NodePort", "annotations": {"a": "b", "c": "d"}, "ipFamilyPolicy": "PreferDualStack",
        "leader": {"type": "LoadBalancer", "annotations": {"a": "x"}, "loadBalancerClass": "l",
                   "loadBalancerSourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local"},
    });
    let mut charts = Vec::new();
    for (mode, name) in
        [("label", "orders-tenure-leader"), ("endpointslice", "orders-tenure-leader-ip")]
    {
        let rendered = render(&with(route(mode), json!({"service": service})));
        let all = rendered.the("Service", "orders-tenure");
        assert_eq!(all["spec"]["type"], "NodePort");
        assert_eq!(all["metadata"]["annotations"], json!({"a": "b", "c": "d"}));
        assert!(all["spec"]["loadBalancerClass"].is_null());
        let leader = rendered.the("Service", name);
        for key in
            ["type", "loadBalancerClass", "loadBalancerSourceRanges", "externalTrafficPolicy"]
        {
            assert_eq!(leader["spec"][key], service["leader"][key], "{key}");
        }
        assert_eq!(leader["metadata"]["annotations"], json!({"a": "x", "c": "d"}));
        for name in ["orders-tenure", name, "orders-tenure-pods"] {
            let spec = &rendered.the("Service", name)["spec"];
            assert_eq!(spec["ipFamilyPolicy"], "PreferDualStack", "{name}");
        }
        assert_eq!(rendered.the("Service", "orders-tenure-pods")["spec"]["type"], Value::Null);
        charts.push(rendered);
    }
    assert_all_valid(&charts);
    let plain = render(&route("label"));
    assert_eq!(plain.the("Service", "orders-tenure-leader")["spec"]["type"], "ClusterIP");
}

#[test]
fn routing_by_probe_waits_for_nothing_and_has_no_budget() {
    let usual = render(&route("none"));
    let strategy = &usual.workload()["spec"]["strategy"];
    assert_eq!(strategy["rollingUpdate"], json!({"maxSurge": 1, "maxUnavailable": 0}));
    let budget = &usual.the("PodDisruptionBudget", "orders-tenure")["spec"];
    assert_eq!(budget["unhealthyPodEvictionPolicy"], "AlwaysAllow");
    assert_eq!(budget["maxUnavailable"], 1);

    let probe = render(&route("probe"));
    let spec = &probe.workload()["spec"];
    assert_eq!(spec["strategy"]["rollingUpdate"], json!({"maxSurge": 0, "maxUnavailable": "100%"}));
    assert_eq!(spec["progressDeadlineSeconds"], i32::MAX, "which is none");
    assert!(probe.each("PodDisruptionBudget").is_empty());
    for strategy in [
        json!({"type": "Recreate"}),
        json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "100%"}}),
    ] {
        let chosen = render(&with(route("probe"), json!({"strategy": strategy})));
        assert_eq!(chosen.workload()["spec"]["strategy"], strategy);
    }
    let least = render(&json!({"replicas": 3, "pdb": {"minAvailable": 2, "maxUnavailable": null}}));
    let budget = &least.the("PodDisruptionBudget", "orders-tenure")["spec"];
    assert_eq!(budget["minAvailable"], 2);
    assert!(budget["maxUnavailable"].is_null());
    let none = json!({"replicas": 0, "pdb": {"minAvailable": 1, "maxUnavailable": null}});
    let budget = &render(&none).the("PodDisruptionBudget", "orders-tenure")["spec"].clone();
    assert_eq!(budget["minAvailable"], 1, "it is kept while there are no pods");
    assert!(render(&json!({"pdb": {"enabled": false}})).each("PodDisruptionBudget").is_empty());
}

#[test]
fn the_token_of_the_api_server_is_the_sidecars_alone_and_only_where_it_needs_one() {
    let reads = |rendered: &manifests::Manifests, name: &str| {
        let mounts = rendered.container(name)["volumeMounts"].as_array().cloned();
        mounts.unwrap_or_default().iter().any(|it| it["name"] == "tenure-api")
    };
    for (values, needed) in [
        (json!({}), true),
        (azure(), false),
        (with(azure(), route("label")), true),
        (with(azure(), route("endpointslice")), true),
        (with(azure(), route("probe")), false),
    ] {
        let rendered = render(&values);
        assert_eq!(reads(&rendered, "tenure"), needed, "{values}");
        assert!(!reads(&rendered, "service"));
        assert_eq!(rendered.pod()["automountServiceAccountToken"], false);
        assert_eq!(rendered.each("Role").is_empty(), !needed, "{values}");
        assert_eq!(rendered.each("RoleBinding").len(), rendered.each("Role").len());
        assert_eq!(rendered.pod()["serviceAccountName"], "orders-tenure");
    }
    let own = render(&json!({"container": {"serviceAccountToken": true}}));
    assert_eq!(own.pod()["automountServiceAccountToken"], true);
}

#[test]
fn a_lease_in_another_namespace_has_its_rights_there() {
    let rendered = render(&json!({"store": "kubernetes:locks/first"}));
    let role = rendered.the("Role", "tenure-lease-orders-tenure.shop");
    assert_eq!(role["metadata"]["namespace"], "locks");
    assert_eq!(role["rules"][0]["resourceNames"], json!(["first"]));
    let binding = rendered.the("RoleBinding", "tenure-lease-orders-tenure.shop");
    assert_eq!(binding["metadata"]["namespace"], "locks");
    assert_eq!(binding["subjects"][0]["namespace"], "shop");
    assert_eq!(binding["subjects"][0]["name"], "orders-tenure");
    assert_eq!(rendered.the("Role", "tenure-pod-orders-tenure")["metadata"]["namespace"], "shop");
    let without = render(
        &json!({"rbac": {"create": false}, "serviceAccount": {"create": false, "name": "x"}}),
    );
    for kind in ["Role", "RoleBinding", "ServiceAccount"] {
        assert!(without.each(kind).is_empty(), "{kind}");
    }
    assert_eq!(without.pod()["serviceAccountName"], "x");
}

#[test]
fn the_rights_are_those_that_tenure_needs_and_no_others() {
    let of = |lease| rights::Of {
        namespace: "shop",
        lease,
        service: "orders-tenure-leader-ip",
        election: "orders-tenure",
    };
    let needed = |purposes: &[Purpose], lease| rights::needed(purposes, &of(lease));
    let lease = ("shop", "orders-tenure");
    for (mode, purpose) in [
        ("none", None),
        ("probe", None),
        ("label", Some(Purpose::Label)),
        ("endpointslice", Some(Purpose::EndpointSlice)),
    ] {
        let with_store: Vec<Purpose> =
            [Purpose::Store, Purpose::Events].into_iter().chain(purpose).collect();
        let granted = render(&route(mode)).granted();
        assert_eq!(granted, needed(&with_store, lease), "{mode}");
        let elsewhere = render(&with(route(mode), json!({"store": "kubernetes:locks/first"})));
        assert_eq!(elsewhere.granted(), needed(&with_store, ("locks", "first")), "{mode}");
        let without: Vec<Purpose> =
            purpose.into_iter().flat_map(|it| [it, Purpose::Events]).collect();
        let granted = render(&with(route(mode), azure())).granted();
        assert_eq!(granted, needed(&without, lease), "{mode}");
    }
}

#[test]
fn the_previous_mode_keeps_its_service_and_its_rights_and_the_new_one_has_a_service_of_its_own() {
    let services = |rendered: &manifests::Manifests| -> Vec<String> {
        let all = rendered.each("Service").into_iter();
        let names = all.map(|it| it["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|it| it.contains("-leader")).collect()
    };
    let names = [("label", "orders-tenure-leader"), ("endpointslice", "orders-tenure-leader-ip")];
    for store in [json!({}), azure()] {
        for (previous, service) in names {
            let old = render(&with(route(previous), store.clone()));
            assert_eq!(services(&old), [service]);
            for mode in ["none", "probe", "label", "endpointslice"] {
                if mode == previous {
                    continue;
                }
                let plain = render(&with(route(mode), store.clone()));
                assert!(!services(&plain).contains(&service.to_owned()), "{mode}");
                let keeps = with(route(mode), json!({"routing": {"previousMode": previous}}));
                let kept = render(&with(keeps, store.clone()));
                assert_eq!(kept.the("Service", service), old.the("Service", service));
                let all: Vec<String> = [&plain, &old].into_iter().flat_map(services).collect();
                assert_eq!(services(&kept), all, "{mode}");
                let both = &plain.granted() | &old.granted();
                assert_eq!(kept.granted(), both, "from {previous} to {mode}");
                assert_eq!(kept.pod(), plain.pod(), "the new pods know nothing of it");
            }
        }
    }
    let named = json!({"election": {"kubeService": "new"},
                       "routing": {"previousMode": "endpointslice", "previousService": "old"}});
    let named = render(&with(route("label"), named));
    assert!(named.the("Service", "old")["spec"]["selector"].is_null());
    assert_eq!(named.the("Service", "new")["spec"]["selector"]["tenure.dev/role"], "active");
    let slice = |it: &manifests::Granted| it.2 == "endpointslices" && it.3 == "update";
    let granted = named.granted();
    assert_eq!(
        granted.iter().find(|it| slice(it)).unwrap().4.as_deref(),
        Some("old.orders-tenure")
    );
}

#[test]
fn each_rule_has_its_reason_above_it() {
    for mode in ["none", "label", "endpointslice"] {
        let rendered = render(&route(mode));
        let lines: Vec<&str> = rendered.text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, it)| it.starts_with("- apiGroups:"))
        {
            assert!(lines[at - 1].starts_with('#'), "{line} in {mode}");
        }
    }
}

#[test]
fn workload_identity_has_the_labels_and_annotations_of_aks() {
    let tenant = "0b0b0b0b-0000-4000-8000-1234567890ab";
    let rendered = render(&with(azure(), json!({"azure": {"tenantId": tenant}})));
    let labels = &rendered.workload()["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["azure.workload.identity/use"], "true");
    let account = &rendered.the("ServiceAccount", "orders-tenure")["metadata"]["annotations"];
    let client = &azure()["azure"]["clientId"];
    assert_eq!(account["azure.workload.identity/client-id"], *client);
    assert_eq!(account["azure.workload.identity/tenant-id"], tenant);

    let secret = json!({"azure": {"clientId": "", "credentialsSecret": "storage"}});
    let rendered = render(&with(azure(), secret));
    let labels = &rendered.workload()["spec"]["template"]["metadata"]["labels"];
    assert!(labels["azure.workload.identity/use"].is_null());
    let sources = &rendered.container("tenure")["envFrom"];
    assert_eq!(*sources, json!([{"secretRef": {"name": "storage"}}]));
    assert!(rendered.container("service")["envFrom"].is_null());
}

#[test]
fn the_sidecar_alone_has_its_identity_in_azure() {
    let client = azure()["azure"]["clientId"].clone();
    let variable = |rendered: &manifests::Manifests, container: &str| {
        let all = rendered.container(container)["env"].as_array().unwrap().clone();
        all.into_iter().find(|it| it["name"] == "AZURE_CLIENT_ID").map(|it| it["value"].clone())
    };
    let annotations = |rendered: &manifests::Manifests| {
        rendered.workload()["spec"]["template"]["metadata"]["annotations"].clone()
    };
    let skip = "azure.workload.identity/skip-containers";
    let rendered = render(&with(
        azure(),
        json!({
            "initContainers": [{"name": "migrate", "image": "x:1"}],
            "extraContainers": [{"name": "proxy", "image": "x:1"}],
        }),
    ));
    assert_eq!(variable(&rendered, "tenure"), Some(client.clone()));
    assert_eq!(variable(&rendered, "service"), None);
    assert_eq!(annotations(&rendered)[skip], "service;migrate;proxy");

    // The service signs in too, as the identity that its ServiceAccount has.
    let own = "11111111-0000-4000-8000-1234567890ab";
    let key = "azure.workload.identity/client-id";
    let shared = json!({
        "container": {"azureIdentity": true},
        "serviceAccount": {"annotations": {key: own}},
    });
    let rendered = render(&with(azure(), shared));
    assert_eq!(
        rendered.the("ServiceAccount", "orders-tenure")["metadata"]["annotations"][key],
        own
    );
    assert_eq!(variable(&rendered, "tenure"), Some(client));
    assert!(annotations(&rendered)[skip].is_null());
}

#[test]
fn a_service_account_that_is_annotated_already_is_accepted() {
    let key = "azure.workload.identity/client-id";
    let own = "11111111-0000-4000-8000-1234567890ab";
    for account in [
        json!({"azure": {"workloadIdentity": true},
               "serviceAccount": {"create": false, "name": "existing"}}),
        json!({"serviceAccount": {"annotations": {key: own}}}),
    ] {
        let values = with(azure(), with(json!({"azure": {"clientId": ""}}), account));
        let rendered = render(&values);
        let metadata = &rendered.workload()["spec"]["template"]["metadata"];
        assert_eq!(metadata["labels"]["azure.workload.identity/use"], "true", "{values}");
        let env = rendered.container("tenure")["env"].as_array().unwrap();
        assert!(env.iter().all(|it| it["name"] != "AZURE_CLIENT_ID"), "{values}");
        for account in rendered.each("ServiceAccount") {
            let wave = "argocd.argoproj.io/sync-wave";
            assert_eq!(account["metadata"]["annotations"], json!({key: own, wave: "-1"}));
        }
    }
}

#[test]
fn releases_of_two_namespaces_share_no_blob() {
    let prefix = |values: Value| {
        let flags = render(&with(azure(), values)).flags();
        flags.into_iter().find(|it| it.starts_with("--azure-blob-prefix"))
    };
    assert_eq!(prefix(json!({})).as_deref(), Some("--azure-blob-prefix=shop"));
    let own = json!({"election": {"azureBlobPrefix": "all"}});
    assert_eq!(prefix(own).as_deref(), Some("--azure-blob-prefix=all"));
    assert_eq!(prefix(json!({"election": {"azureBlobPrefix": ""}})), None);
}

#[test]
fn the_network_policy_opens_the_ports_that_are_named_and_no_others() {
    let rendered = render(&route("none"));
    let policy = &rendered.the("NetworkPolicy", "orders-tenure")["spec"];
    assert_eq!(policy["policyTypes"], json!(["Ingress"]));
    let ports: Vec<&Value> =
        policy["ingress"].as_array().unwrap().iter().map(|it| &it["ports"]).collect();
    let status = json!([{"protocol": "TCP", "port": 4040}]);
    assert_eq!(ports[..2], [&status, &json!([{"protocol": "TCP", "port": 8080}])]);
    assert_eq!(ports.len(), 3, "the third is that of meshes");
    assert_eq!(policy["ingress"][0]["from"][0], json!({"namespaceSelector": {}}));
    assert!(policy["ingress"][1]["from"].is_null());
    let egress = json!({"networkPolicy": {"egress": {"enabled": true}}});
    let policy =
        &render(&with(route("none"), egress)).the("NetworkPolicy", "orders-tenure")["spec"].clone();
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    let open = policy["egress"].as_array().unwrap();
    let open: Vec<&Value> = open.iter().flat_map(|it| it["ports"].as_array().unwrap()).collect();
    assert!(open.contains(&&json!({"protocol": "TCP", "port": 443})));
    let node = json!({
        "azure": {"clientId": "", "managedIdentity": true},
        "networkPolicy": {"egress": {"enabled": true}},
    });
    let rendered = render(&with(azure(), node));
    assert!(rendered.text.contains("169.254.169.254/32"), "where the node's identity is asked for");
    let own = json!({
        "networkPolicy": {"egress": {"enabled": true}},
        "election": {"agentCheck": "[::]:4042", "scheduledEvents": "azure"},
    });
    let rendered = render(&with(route("none"), own));
    assert!(rendered.text.contains("169.254.169.254/32"), "where scheduled events are asked for");
    let policy = &rendered.the("NetworkPolicy", "orders-tenure")["spec"];
    assert_eq!(policy["ingress"][2]["ports"], json!([{"protocol": "TCP", "port": 4042}]));
    let arguments = rendered.text.contains("TENURE_AGENT_CHECK");
    assert!(arguments && rendered.text.contains("TENURE_SCHEDULED_EVENTS"), "{}", rendered.text);
}

#[test]
fn pods_are_spread_over_nodes_and_zones() {
    let rendered = render(&json!({}));
    let keys: Vec<&Value> = rendered.pod()["topologySpreadConstraints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["topologyKey"])
        .collect();
    assert_eq!(keys, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
    let own = render(&json!({"topologySpreadConstraints": []}));
    assert_eq!(own.pod()["topologySpreadConstraints"], json!([]));
}

#[test]
fn the_monitoring_objects_match_the_files_of_monitoring() {
    let labels = json!({"release": "kube-prometheus-stack"});
    let rendered = render(&json!({
        "podMonitor": {"enabled": true, "labels": labels, "interval": "30s"},
        "prometheusRule": {"enabled": true, "labels": labels},
        "dashboard": {"enabled": true},
    }));
    let rule = rendered.the("PrometheusRule", "orders-tenure");
    assert_eq!(rule["metadata"]["labels"]["release"], "kube-prometheus-stack");
    assert_eq!(rule["spec"], yaml::document(&text("monitoring/rules.yaml")));
    let monitor = rendered.the("PodMonitor", "orders-tenure");
    assert_eq!(monitor["metadata"]["labels"]["release"], "kube-prometheus-stack");
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["port"], "tenure");
    assert_eq!(endpoint["interval"], "30s");
    let selector = &monitor["spec"]["selector"]["matchLabels"];
    assert_eq!(*selector, rendered.workload()["spec"]["selector"]["matchLabels"]);
    let board = rendered.the("ConfigMap", "orders-tenure-dashboard");
    assert_eq!(board["metadata"]["labels"]["grafana_dashboard"], "1");
    let shown: Value =
        serde_json::from_str(board["data"]["tenure.json"].as_str().unwrap()).unwrap();
    let source: Value = serde_json::from_str(&text("monitoring/dashboard.json")).unwrap();
    assert_eq!(shown, source);
    let plain = render(&json!({}));
    for kind in ["PodMonitor", "PrometheusRule"] {
        assert!(plain.each(kind).is_empty(), "{kind}");
    }
    assert_eq!(plain.each("ConfigMap").len(), 1, "that with the identity of the lease");
}

#[test]
fn the_monitoring_objects_fit_the_prometheus_of_the_cluster() {
    let rendered = render(&json!({
        "podMonitor": {"enabled": true, "namespace": "monitoring",
            "interval": "1h", "scrapeTimeout": "1m30s",
            "relabelings": [{"action": "labeldrop", "regex": "pod"}],
            "metricRelabelings": [{"action": "labeldrop", "regex": "identity"}]},
        "prometheusRule": {"enabled": true, "namespace": "monitoring",
            "severities": {"critical": "page", "TenureFlapping": "info"},
            "disabled": ["TenureClockJumps"], "runbookBaseUrl": "https://wiki.internal/tenure/",
            "extraRules": [{"alert": "Own", "expr": "vector(1)"}]},
    }));
    let monitor = rendered.the("PodMonitor", "orders-tenure");
    assert_eq!(monitor["metadata"]["namespace"], "monitoring");
    assert_eq!(monitor["spec"]["namespaceSelector"], json!({"matchNames": ["shop"]}));
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(
        (&endpoint["interval"], &endpoint["scrapeTimeout"]),
        (&json!("1h"), &json!("1m30s"))
    );
    assert_eq!(endpoint["relabelings"][0]["regex"], "pod");
    assert_eq!(endpoint["metricRelabelings"][0]["regex"], "identity");

    let rule = rendered.the("PrometheusRule", "orders-tenure");
    assert_eq!(rule["metadata"]["namespace"], "monitoring");
    let source = yaml::document(&text("monitoring/rules.yaml"));
    let alerts = |it: &Value| it["groups"][0]["rules"].as_array().unwrap().clone();
    let (ours, theirs) = (alerts(&source), alerts(&rule["spec"]));
    assert_eq!(theirs.len(), ours.len() - 1);
    assert!(theirs.iter().all(|it| it["alert"] != "TenureClockJumps"));
    for mut alert in ours.into_iter().filter(|it| it["alert"] != "TenureClockJumps") {
        let name = alert["alert"].as_str().unwrap().to_owned();
        let severity = &mut alert["labels"]["severity"];
        if name == "TenureFlapping" {
            *severity = json!("info");
        } else if severity == "critical" {
            *severity = json!("page");
        }
        let runbook = format!("https://wiki.internal/tenure/{name}.md");
        alert["annotations"]["runbook_url"] = json!(runbook);
        assert!(theirs.contains(&alert), "{alert}");
    }
    let own = json!({"name": "tenure-extra", "rules": [{"alert": "Own", "expr": "vector(1)"}]});
    assert_eq!(rule["spec"]["groups"][1], own);
}

#[test]
fn the_helm_test_checks_all_pods_for_exactly_one_leader() {
    let rendered = render(&json!({"replicas": 3}));
    let pod = rendered.the("Pod", "orders-tenure-exactly-one");
    assert_eq!(pod["metadata"]["annotations"]["helm.sh/hook"], "test");
    let args: Vec<&str> = pod["spec"]["containers"][0]["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    let url = "--url=http://orders-tenure-pods.shop.svc:4040";
    assert_eq!(args, ["wait", "--for=exactly-one", "--of=3", url, "--timeout=4m"]);
    assert_restricted(&pod["spec"]);
    // Tenure accepts them: the name does not exist here, which it reports within the timeout.
    let ran =
        std::process::Command::new(env!("CARGO_BIN_EXE_tenure"))
            .args(args.iter().map(|it| {
                it.replace("4m", "1s").replace("orders-tenure-pods.shop.svc", "a.invalid")
            }))
            .output()
            .unwrap();
    assert_eq!(ran.status.code(), Some(1), "{}", String::from_utf8_lossy(&ran.stderr));
    let observers = render(&json!({"election": {"observe": true}}));
    assert!(observers.each("Pod").is_empty(), "none of them ever leads");
}

#[test]
fn the_notes_name_the_leader_command_and_warn_of_risky_values() {
    let notes = |values: Value| {
        let values = with(json!({"container": {"image": "x:1"}}), values);
        let flags = [
            "install",
            "orders",
            APPLICATION,
            "--dry-run=client",
            "--namespace",
            "shop",
            "--values",
            "-",
        ];
        let ran = run("helm", &flags, &values.to_string());
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let text = String::from_utf8(ran.stdout).unwrap();
        text.split_once("NOTES:").unwrap().1.to_owned()
    };
    let plain = notes(json!({}));
    for line in [
        "kubectl tenure status orders-tenure --namespace shop ",
        "kubectl exec --namespace shop deployment/orders-tenure -c tenure -- /tenure status",
        "kubectl get lease --namespace shop orders-tenure",
        "helm test orders --namespace shop",
        "kubectl port-forward --namespace shop deployment/orders-tenure 4040:4040",
    ] {
        assert!(plain.contains(line), "{line} in {plain}");
    }
    assert!(!plain.contains("WARNING") && !plain.contains("NOTE"), "{plain}");
    let probe = notes(route("probe"));
    assert!(probe.contains("WARNING: with routing.mode probe only the leader is ready"), "{probe}");
    let label = notes(route("label"));
    assert!(label.contains("orders-tenure-leader.shop.svc"), "{label}");
    let limits = json!({"sidecar": {"resources": {"limits": {"cpu": "1"}}}});
    assert!(notes(limits).contains("sidecar.resources.limits.cpu throttles"));
    assert!(notes(json!({"replicas": 1})).contains("replicas is 1"));
    assert!(notes(json!({"rbac": {"create": false}})).contains("rbac.create is false"));
    let file = notes(json!({"store": "file:///var/lock/tenure"}));
    assert!(file.contains("WARNING: store is file:///var/lock/tenure"));
}
