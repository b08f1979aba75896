//! The ports of the Service, as an `EndpointSlice` has them.

use crate::kube::objects::{EndpointPort, Service, ServicePort};

/// Returns the ports of a Service for an `EndpointSlice`, or why it cannot be used.
pub(in crate::publish::route) fn ports(service: &Service) -> Result<Vec<EndpointPort>, String> {
    let name = &service.metadata.name;
    if !service.spec.selector.is_empty() {
        return Err(format!(
            "the Service {name} has a selector, so Kubernetes writes its endpoints: remove \
             spec.selector, or use --kube-route label"
        ));
    }
    let port = |port: &ServicePort| {
        let number = match &port.target_port {
            None => Some(port.port),
            Some(it) => it.as_i64().and_then(|it| i32::try_from(it).ok()),
        };
        let number = number.ok_or_else(|| {
            format!(
                "the targetPort of the Service {name}'s port {} is a name, which Tenure cannot \
                 resolve: set a number",
                port.port
            )
        })?;
        Ok(EndpointPort {
            // As the API server would default them, so that they can be compared.
            name: Some(port.name.clone().unwrap_or_default()),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            port: Some(if number == 0 { port.port } else { number }),
            app_protocol: port.app_protocol.clone(),
        })
    };
    service.spec.ports.iter().map(port).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        serde_json::from_value(json!({"metadata": {"name": "web", "uid": "s"}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn a_service_that_cannot_be_stood_behind_is_refused() {
        let why = ports(&service(json!({"selector": {"app": "web"}}))).unwrap_err();
        assert!(why.contains("web has a selector") && why.contains("--kube-route label"), "{why}");
        let why = ports(&service(json!({"ports": [{"port": 80, "targetPort": "http"}]})));
        assert!(why.unwrap_err().contains("set a number"));
        let all = ports(&service(json!({"ports": [
            {"name": "http", "port": 80},
            {"name": "dns", "port": 53, "targetPort": 5353, "protocol": "UDP"},
            {"name": "grpc", "port": 90, "targetPort": 9090, "appProtocol": "kubernetes.io/h2c"},
        ]})));
        let numbers: Vec<_> = all.unwrap().into_iter().filter_map(|it| it.port).collect();
        assert_eq!(numbers, [80, 5353, 9090]);
    }
}
