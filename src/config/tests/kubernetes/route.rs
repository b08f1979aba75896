//! Tests of the settings of a route: the label, the Service, and the facts about the pod.

use super::*;

#[test]
fn a_route_by_label_has_its_key() {
    let pod = Pod::new();
    let key = |flags: &[(&'static str, &str)]| match pod.publishing(flags).route {
        Some(Route::Label { key }) => key,
        other => panic!("{other:?}"),
    };
    assert_eq!(key(&[STORE, LABEL]), "tenure.dev/role");
    assert_eq!(key(&[STORE, LABEL, ("kube-label", "Role_2")]), "Role_2");
    let summary = pod.settings(&[STORE, LABEL]).summary();
    assert!(summary.contains("kube-route=label:tenure.dev/role "), "{summary}");
    for (bad, words) in [
        ("role/", "1 to 63"),
        ("/role", "domain"),
        ("a/b/c", "other than letters"),
        ("Example.org/role", "domain"),
        ("-role", "begins or ends"),
        ("role.", "begins or ends"),
        ("ro le", "other than letters"),
        (&"x".repeat(64), "1 to 63"),
        ("tenure.dev/election", "the name of the election"),
    ] {
        let faults = pod.faults(&[STORE, LABEL, ("kube-label", bad)]);
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!((fault.setting.as_str(), fault.value.as_deref()), ("kube-label", Some(bad)));
        assert!(fault.problem.contains(words), "{fault:?}");
    }
    let longest = format!("{}.{}/{}", "a".repeat(63), "b".repeat(189), "x".repeat(63));
    assert_eq!(key(&[STORE, LABEL, ("kube-label", &longest)]), longest);
}

#[test]
fn a_route_by_slice_has_its_service_and_the_pod_s_address() {
    let route = |pod: &Pod, flags: &[(&'static str, &str)]| pod.publishing(flags).route;
    let to = |address: &str| {
        let address = address.parse().unwrap();
        Some(Route::EndpointSlice { service: "orders".to_owned(), address })
    };
    let pod = Pod::new();
    let all = [STORE, SLICE, SERVICE];
    assert_eq!(route(&pod, &all), to("10.1.0.7"));
    assert!(pod.settings(&all).summary().contains("kube-route=endpointslice:orders:10.1.0.7 "));
    let pod = pod.without("POD_IP");
    for (advertise, address) in [
        ("10.2.0.1:8080", "10.2.0.1"),
        ("10.2.0.1", "10.2.0.1"),
        ("[fd00::2]:80", "fd00::2"),
        ("[fd00::2]", "fd00::2"),
        ("http://10.2.0.1:80/x", "10.2.0.1"),
    ] {
        let advertise = [("advertise", advertise)];
        assert_eq!(route(&pod, &[&all[..], &advertise].concat()), to(address));
    }
    for (advertise, problem) in [
        ("orders-1:80", "no IP address"),
        ("127.0.0.1:80", "other pods cannot reach"),
        ("[::]:80", "other pods cannot reach"),
        ("169.254.1.1", "other pods cannot reach"),
    ] {
        let faults = pod.faults(&[&all[..], &[("advertise", advertise)]].concat());
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!(fault.subject(), format!("advertise = {advertise:?} (flag --advertise)"));
        assert!(fault.problem.contains(problem), "{fault:?}");
        assert!(fault.remedy.contains("status.podIP"), "{fault:?}");
    }
}

#[test]
fn an_election_that_cannot_name_a_slice_is_rejected_for_a_route_by_slice() {
    let pod = Pod::new();
    for name in ["a..b", "a.-b", "a-.b"] {
        let election = ("election", name);
        let faults = pod.faults(&[STORE, SLICE, SERVICE, election]);
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!(fault.subject(), format!("election = {name:?} (flag --election)"));
        assert!(fault.problem.contains(&format!("orders.{name}")), "{fault:?}");
        pod.settings(&[STORE, LABEL, election]);
    }
    pod.settings(&[STORE, SLICE, SERVICE, ("election", "a.b-c")]);
}

#[test]
fn a_route_names_all_missing_facts_at_once() {
    let named = |faults: &[Fault]| -> Vec<String> {
        faults.iter().map(|it| format!("{}: {}", it.subject(), it.problem)).collect()
    };
    let bare = outside();
    let api = ("kube-api", "https://api.test");
    let faults = bare.faults(&[api, SLICE, ("store", "memory:")]);
    let all = named(&faults).join("\n");
    assert_eq!(faults.len(), 4, "{all}");
    for words in ["POD_NAME is not set", "pod's namespace", "POD_IP", "needs a Service"] {
        assert!(all.contains(words), "{words} in {all}");
    }
    assert!(faults.iter().all(|it| it.setting == "kube-route"), "{all}");
    assert!(faults[0].remedy.contains("metadata.name"), "{:?}", faults[0]);

    let faults = bare.faults(&[SLICE, ("store", "memory:")]);
    assert_eq!(faults.len(), 5, "{}", named(&faults).join("\n"));
    assert!(faults[0].problem.contains("needs an API server"), "{faults:?}");

    let faults = Pod::new().faults(&[STORE, LABEL, SERVICE]);
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    assert_eq!(fault.subject(), "kube-service = \"orders\" (flag --kube-service)");
    assert!(fault.problem.contains("[kube-route: flag --kube-route]"), "{fault:?}");
    assert!(fault.remedy.contains("tenure.dev/role: active"), "{fault:?}");

    for (name, value, field) in
        [("POD_NAME", "Pod 1", "metadata.name"), ("POD_IP", "10.0.0", "status.podIP")]
    {
        let faults = Pod::new().with(name, value).faults(&[STORE, SLICE, SERVICE]);
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!((fault.setting.as_str(), fault.value.as_deref()), (name, Some(value)));
        assert!(fault.remedy.contains(field), "{fault:?}");
    }
    let faults = Pod::new().faults(&[STORE, ("kube-route", "service")]);
    assert!(faults[0].remedy.contains("label or endpointslice"), "{faults:?}");
    let faults = Pod::new().faults(&[STORE, SLICE, ("kube-service", "Orders")]);
    assert!(faults[0].remedy.contains("such as orders"), "{faults:?}");
}
