{{/* Rejects values that contradict each other. Each message has the value and the remedy. */}}

{{- define "app.guards" -}}
{{- $c := .Values.container -}}
{{- $i := .Values.image -}}
{{- include "app.guards.unknown" . -}}
{{- if not (or $c.image $i.repository) -}}
  {{- fail "container.image is empty: set it to the image of your service" -}}
{{- end -}}
{{- if and $c.image (or $i.repository $i.tag $i.digest) -}}
  {{- fail (printf "container.image is %s, and image.repository, image.tag or image.digest is set too: set container.image alone, or image.repository and image.tag" $c.image) -}}
{{- end -}}
{{- if and $i.repository (not $i.tag) (not $i.digest) -}}
  {{- fail (printf "image.tag and image.digest are empty, and image.repository is %s: set one of them" $i.repository) -}}
{{- end -}}
{{- include "app.guards.kind" . -}}
{{- include "app.guards.labels" . -}}
{{- include "app.guards.probe" . -}}
{{- range $key := list "startupProbe" "readinessProbe" "livenessProbe" -}}
  {{- range $how := list "httpGet" "tcpSocket" -}}
    {{- if dig $how "host" "" (get $c $key | default dict) -}}
      {{- fail (printf "container.%s.%s.host is set, and the probe would query that host instead of the pod: remove it" $key $how) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $needed := include "tenure.terminationGracePeriodSeconds" . | int -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if not (kindIs "invalid" $given) -}}
  {{- if lt (int $given) $needed -}}
    {{- fail (printf "terminationGracePeriodSeconds is %d, but shutdown can take %d: leave it empty, or raise it to that, or lower sidecar.serviceStopSeconds or election.drainTimeout" (int $given) $needed) -}}
  {{- end -}}
{{- end -}}
{{- if and (include "app.hasLeaderService" .) (not $c.ports) -}}
  {{- fail (printf "container.ports is empty, and routing.mode %s routes a Service to the leader's ports: list them, or set routing.mode=none" .Values.routing.mode) -}}
{{- end -}}
{{- $replicas := include "app.mostReplicas" . | int -}}
{{- if and (gt $replicas 1) (eq (include "tenure.storeKind" .) "memory") -}}
  {{- fail (printf "store is memory:, where each of the %d replicas would have its own leader: set store=kubernetes, or replicas=1" $replicas) -}}
{{- end -}}
{{- $identity := .Values.election.identity | default "" -}}
{{- if and $identity (gt $replicas 1) (not (contains "$(" $identity)) -}}
  {{- fail (printf "election.identity is %s for each of the %d replicas: leave it empty for the name of the pod, or put $(POD_NAME) in" $identity $replicas) -}}
{{- end -}}
{{- include "app.guards.names" . -}}
{{- include "app.guards.pdb" . -}}
{{- end -}}

{{/* Names that other charts have for values of this one. */}}
{{- define "app.guards.unknown" -}}
{{- $meant := dict
  "annotations" "commonAnnotations or podAnnotations"
  "args" "container.args"
  "command" "container.command"
  "containerSecurityContext" "container.securityContext"
  "deploymentStrategy" "strategy"
  "env" "container.env, or sidecar.env for Tenure"
  "envFrom" "container.envFrom"
  "extraDeploy" "extraObjects"
  "extraEnv" "container.env, or sidecar.env for Tenure"
  "extraEnvFrom" "container.envFrom"
  "extraEnvVars" "container.env, or sidecar.env for Tenure"
  "extraInitContainers" "initContainers"
  "extraManifests" "extraObjects"
  "extraVolumeMounts" "container.volumeMounts, or sidecar.volumeMounts for Tenure"
  "extraVolumes" "volumes"
  "hpa" "autoscaling"
  "ingress" "extraObjects, with an Ingress to the Service NAME-leader or NAME"
  "labels" "commonLabels or podLabels"
  "lifecycle" "container.lifecycle"
  "livenessProbe" "container.livenessProbe"
  "metrics" "podMonitor"
  "podDisruptionBudget" "pdb"
  "ports" "container.ports"
  "readinessProbe" "container.readinessProbe"
  "resources" "container.resources, or sidecar.resources for Tenure"
  "securityContext" "container.securityContext or podSecurityContext"
  "serviceMonitor" "podMonitor"
  "sidecars" "extraContainers"
  "startupProbe" "container.startupProbe"
  "volumeMounts" "container.volumeMounts, or sidecar.volumeMounts for Tenure"
-}}
{{- $unknown := list -}}
{{- range $name := keys .Values | sortAlpha -}}
  {{- with get $meant $name -}}
    {{- $unknown = append $unknown (printf "this chart has no value %s: you mean %s" $name .) -}}
  {{- end -}}
{{- end -}}
{{- if $unknown -}}
  {{- fail (join "\n" $unknown) -}}
{{- end -}}
{{- end -}}

{{/* What is of one kind of workload alone. */}}
{{- define "app.guards.kind" -}}
{{- $kind := .Values.kind -}}
{{- if and (ne $kind "StatefulSet") .Values.volumeClaimTemplates -}}
  {{- fail (printf "volumeClaimTemplates is set, and kind is %s: set kind=StatefulSet, or use volumes" $kind) -}}
{{- end -}}
{{- if and (ne $kind "Deployment") .Values.strategy -}}
  {{- fail (printf "strategy is set, and kind is %s: you mean updateStrategy" $kind) -}}
{{- end -}}
{{- if and (eq $kind "Deployment") .Values.updateStrategy -}}
  {{- fail "updateStrategy is set, and kind is Deployment: you mean strategy" -}}
{{- end -}}
{{- if and .Values.election.moved (eq $kind "StatefulSet") (ne (include "app.replicas" .) "0") -}}
  {{- fail "election.moved is true, and a StatefulSet replaces its pods one by one, so that old and new ones would have a leader each: set replicas=0 for this upgrade, wait until the pods are gone, and upgrade again without election.moved" -}}
{{- end -}}
{{- if and .Values.election.moved (eq $kind "DaemonSet") -}}
  {{- fail "election.moved is true, and a DaemonSet replaces its pods one by one, so that old and new ones would have a leader each: uninstall the release, wait until the pods are gone, and install it again without election.moved" -}}
{{- end -}}
{{- if and (eq $kind "DaemonSet") .Values.autoscaling.enabled -}}
  {{- fail "autoscaling.enabled is true, and kind is DaemonSet, which has one pod on each node: set autoscaling.enabled=false, or kind=Deployment" -}}
{{- end -}}
{{- if and (eq $kind "DaemonSet") (include "app.hasPdb" .) -}}
  {{- fail "pdb.enabled is true, and kind is DaemonSet, whose pods a drain does not evict: leave pdb.enabled empty, or set kind=Deployment" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
  {{- fail (printf "autoscaling.minReplicas is %v, more than autoscaling.maxReplicas, %v: raise autoscaling.maxReplicas" .Values.autoscaling.minReplicas .Values.autoscaling.maxReplicas) -}}
{{- end -}}
{{- end -}}

{{/* Labels and variables that the chart sets and that must have its value. */}}
{{- define "app.guards.labels" -}}
{{- $own := include "app.ownPodLabels" . | fromYaml -}}
{{- range $where := list "commonLabels" "podLabels" -}}
  {{- range $key, $value := get $.Values $where | default dict -}}
    {{- if ne $value (get $own $key | default $value) -}}
      {{- fail (printf "commonLabels or podLabels has %s: %s, but the chart selects pods by %s there: remove it, or set nameOverride or election.election" $key $value (get $own $key)) -}}
    {{- end -}}
    {{- if and (eq $.Values.routing.mode "label") (eq $key $.Values.election.kubeLabel) -}}
      {{- fail (printf "commonLabels and podLabels must not have %s, which Tenure sets on each pod and a rollout would reset: remove it" $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and (eq .Values.routing.mode "label") (or (hasKey $own .Values.election.kubeLabel) (eq .Values.election.kubeLabel "app.kubernetes.io/version")) -}}
  {{- fail (printf "election.kubeLabel is %s, which the chart sets on each pod: set it to another label" .Values.election.kubeLabel) -}}
{{- end -}}
{{- range .Values.container.env -}}
  {{- if eq .name "TENURE_URL" -}}
    {{- fail "container.env has TENURE_URL, which the chart sets: remove it, or set election.listen to another port" -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* With routing.mode probe, only one pod is ever ready. */}}
{{- define "app.guards.probe" -}}
{{- if eq .Values.routing.mode "probe" -}}
  {{- if ne .Values.kind "Deployment" -}}
    {{- fail (printf "kind is %s, and routing.mode probe leaves all pods but one unready, for which a %s waits forever: set kind=Deployment, or routing.mode=label" .Values.kind .Values.kind) -}}
  {{- end -}}
  {{- if include "app.hasPdb" . -}}
    {{- fail "pdb.enabled is true, but with routing.mode probe the only ready pod could never be evicted: set pdb.enabled=false, or routing.mode=label" -}}
  {{- end -}}
  {{- $s := .Values.strategy -}}
  {{- if and $s (ne (get $s "type") "Recreate") -}}
    {{- if ne (dig "rollingUpdate" "maxUnavailable" "" $s | toString) "100%" -}}
      {{- fail "strategy waits for pods to be ready, but with routing.mode probe no new pod is ready while an old one leads: leave strategy empty, or set strategy.rollingUpdate.maxUnavailable=100% or strategy.type=Recreate, or routing.mode=label" -}}
    {{- end -}}
  {{- end -}}
  {{- if .Values.minReadySeconds -}}
    {{- fail "minReadySeconds is set, but with routing.mode probe a rollout does not wait for ready pods: set minReadySeconds=0, or routing.mode=label" -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "app.guards.names" -}}
{{- range $name := list (include "tenure.fullname" .) (include "tenure.leaderServiceName" .) -}}
  {{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
    {{- fail (printf "a Service cannot be named %s: set fullnameOverride or election.kubeService to a name of a-z, 0-9 and -, with a letter first" $name) -}}
  {{- end -}}
{{- end -}}
{{- $names := list "tenure" .Values.container.name -}}
{{- range concat (.Values.initContainers | default list) (.Values.extraContainers | default list) -}}
  {{- if has .name $names -}}
    {{- fail (printf "initContainers and extraContainers have a second container named %s: give it another name" .name) -}}
  {{- end -}}
  {{- $names = append $names .name -}}
{{- end -}}
{{- $ports := list -}}
{{- $numbers := list -}}
{{- $servicePorts := list -}}
{{- range .Values.container.ports -}}
  {{- if or (eq .name "tenure") (has .name $ports) -}}
    {{- fail (printf "container.ports has a second port named %s: give it another name" .name) -}}
  {{- end -}}
  {{- if eq (toString .containerPort) (include "tenure.port" $) -}}
    {{- fail (printf "container.ports has %v, where the sidecar listens: set election.listen to another port" .containerPort) -}}
  {{- end -}}
  {{- if eq (toString .containerPort) (include "tenure.localPort" $) -}}
    {{- fail (printf "container.ports has %v, where the sidecar listens on 127.0.0.1: set tls.localPort or election.listen to another port" .containerPort) -}}
  {{- end -}}
  {{- $number := printf "%v/%s" .containerPort (.protocol | default "TCP") -}}
  {{- if has $number $numbers -}}
    {{- fail (printf "container.ports has a second containerPort %s: remove it" $number) -}}
  {{- end -}}
  {{- $servicePort := printf "%v/%s" (.servicePort | default .containerPort) (.protocol | default "TCP") -}}
  {{- if has $servicePort $servicePorts -}}
    {{- fail (printf "container.ports has a second servicePort %s: give it another servicePort" $servicePort) -}}
  {{- end -}}
  {{- $ports = append $ports .name -}}
  {{- $numbers = append $numbers $number -}}
  {{- $servicePorts = append $servicePorts $servicePort -}}
{{- end -}}
{{- range .Values.volumes -}}
  {{- if hasPrefix "tenure-" .name -}}
    {{- fail (printf "volumes has %s, but names with tenure- are reserved for the sidecar: give it another name" .name) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "app.guards.pdb" -}}
{{- $least := .Values.pdb.minAvailable -}}
{{- $replicas := include "app.leastReplicas" . | int -}}
{{- $most := .Values.pdb.maxUnavailable -}}
{{- if and (not (kindIs "invalid" $least)) (not (kindIs "invalid" $most)) -}}
  {{- fail "pdb.minAvailable and pdb.maxUnavailable are both set: set one of them to null" -}}
{{- end -}}
{{- if include "app.hasPdb" . -}}
  {{- if and (kindIs "invalid" $least) (kindIs "invalid" $most) -}}
    {{- fail "pdb.minAvailable and pdb.maxUnavailable are both null: set one of them, or pdb.enabled=false" -}}
  {{- end -}}
  {{- if or (eq (toString $most) "0") (eq (toString $most) "0%") -}}
    {{- fail (printf "pdb.maxUnavailable is %v, so no node could ever be drained: set it to 1" $most) -}}
  {{- end -}}
  {{- if not (kindIs "invalid" $least) -}}
    {{- if and (gt $replicas 0) (or (eq (toString $least) "100%") (and (not (hasSuffix "%" (toString $least))) (ge (int $least) $replicas))) -}}
      {{- fail (printf "pdb.minAvailable is %v of %d replicas, so no node could ever be drained: lower it, or raise replicas" $least $replicas) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
