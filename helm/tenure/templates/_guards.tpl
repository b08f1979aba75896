{{/* Rejects values that contradict each other. Each message has the value and the remedy. */}}

{{- define "app.guards" -}}
{{- $c := .Values.container -}}
{{- if not $c.image -}}
  {{- fail "container.image is empty: set it to the image of your service" -}}
{{- end -}}
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
{{- if and (gt (int .Values.replicas) 1) (eq (include "tenure.storeKind" .) "memory") -}}
  {{- fail (printf "store is memory:, where each of the %d replicas would have its own leader: set store=kubernetes, or replicas=1" (int .Values.replicas)) -}}
{{- end -}}
{{- $identity := .Values.election.identity | default "" -}}
{{- if and $identity (gt (int .Values.replicas) 1) (not (contains "$(" $identity)) -}}
  {{- fail (printf "election.identity is %s for each of the %d replicas: leave it empty for the name of the pod, or put $(POD_NAME) in" $identity (int .Values.replicas)) -}}
{{- end -}}
{{- if and (eq .Values.kind "Deployment") .Values.volumeClaimTemplates -}}
  {{- fail "volumeClaimTemplates is set, and kind is Deployment: set kind=StatefulSet, or use volumes" -}}
{{- end -}}
{{- include "app.guards.names" . -}}
{{- include "app.guards.pdb" . -}}
{{- end -}}

{{/* With routing.mode probe, only one pod is ever ready. */}}
{{- define "app.guards.probe" -}}
{{- if eq .Values.routing.mode "probe" -}}
  {{- if eq .Values.kind "StatefulSet" -}}
    {{- fail "kind is StatefulSet, and routing.mode probe leaves all pods but one unready, for which a StatefulSet waits forever: set kind=Deployment, or routing.mode=label" -}}
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
{{- $names := list "tenure" .Values.container.name -}}
{{- range concat .Values.initContainers .Values.extraContainers -}}
  {{- if has .name $names -}}
    {{- fail (printf "initContainers and extraContainers have a second container named %s: give it another name" .name) -}}
  {{- end -}}
  {{- $names = append $names .name -}}
{{- end -}}
{{- $ports := list -}}
{{- range .Values.container.ports -}}
  {{- if or (eq .name "tenure") (has .name $ports) -}}
    {{- fail (printf "container.ports has a second port named %s: give it another name" .name) -}}
  {{- end -}}
  {{- if eq (toString .containerPort) (include "tenure.port" $) -}}
    {{- fail (printf "container.ports has %v, where the sidecar listens: set election.listen to another port" .containerPort) -}}
  {{- end -}}
  {{- $ports = append $ports .name -}}
{{- end -}}
{{- range .Values.volumes -}}
  {{- if hasPrefix "tenure-" .name -}}
    {{- fail (printf "volumes has %s, but names with tenure- are reserved for the sidecar: give it another name" .name) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "app.guards.pdb" -}}
{{- $least := .Values.pdb.minAvailable -}}
{{- $most := .Values.pdb.maxUnavailable -}}
{{- if and (not (kindIs "invalid" $least)) (not (kindIs "invalid" $most)) -}}
  {{- fail "pdb.minAvailable and pdb.maxUnavailable are both set: set one of them to null" -}}
{{- end -}}
{{- if include "app.hasPdb" . -}}
  {{- if or (eq (toString $most) "0") (eq (toString $most) "0%") -}}
    {{- fail (printf "pdb.maxUnavailable is %v, so no node could ever be drained: set it to 1" $most) -}}
  {{- end -}}
  {{- if not (kindIs "invalid" $least) -}}
    {{- if or (eq (toString $least) "100%") (and (not (hasSuffix "%" (toString $least))) (ge (int $least) (int .Values.replicas))) -}}
      {{- fail (printf "pdb.minAvailable is %v of %d replicas, so no node could ever be drained: lower it, or raise replicas" $least (int .Values.replicas)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
