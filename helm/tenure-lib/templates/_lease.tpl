{{/*
Which lease the candidates compete for. During a rollout that changes it, old and new pods have a leader each.
*/}}

{{/*
The identity of the lease. Never write it in another form: the next upgrade of each release would be refused.
*/}}
{{- define "tenure.lease" -}}
{{- $kind := include "tenure.storeKind" . -}}
{{- $url := include "tenure.storeUrl" . | trimSuffix "/" -}}
{{- $settings := include "tenure.settings" . | fromYaml -}}
{{- if eq $kind "kubernetes" -}}
kubernetes:{{ include "tenure.leaseNamespace" . }}/{{ include "tenure.leaseName" . }}
{{- with $settings.kubeApi }} at {{ . }}{{ end -}}
{{- else if eq $kind "azure" -}}
{{ compact (list $url (trimSuffix "/" $settings.azureBlobPrefix) $settings.election) | join "/" }}
{{- with $settings.azureEndpoint }} at {{ . }}{{ end -}}
{{- else if eq $kind "s3" -}}
{{ $url }}/{{ $settings.election }}
{{- with $settings.s3Endpoint }} at {{ . }}{{ end -}}
{{- else if has $kind (list "consul" "etcd" "mongodb" "postgres" "redis" "zookeeper") -}}
{{- /* The other members, standbys and replicas may change. */ -}}
{{ regexReplaceAll "^([a-z]+://[^,/]*),[^/]*" $url "${1}" }}/
{{- if eq $kind "mongodb" }}{{ $settings.mongodbCollection }}/{{ end }}
{{- if eq $kind "postgres" }}{{ $settings.postgresTable }}/{{ end }}
{{- $settings.election }}
{{- else -}}
{{ $url }}/{{ $settings.election }}
{{- end -}}
{{- end -}}

{{/*
A ConfigMap with the identity of the lease, which refuses an upgrade that moves the election:

- Helm updates the other objects although one update has failed, so the template fails if the ConfigMap in the
  cluster has another identity.
- Argo CD renders without a cluster. The API server does not let it change the ConfigMap, and it applies the other
  objects in later waves. The ConfigMap's name, which depends on no value, is in the error message.

Takes (dict "context" CONTEXT "labels" YAML), and optionally "annotations".
*/}}
{{- define "tenure.leaseGuard" -}}
{{- if not .context.Values.election.moved -}}
{{- $name := include "tenure.leaseGuardName" .context -}}
{{- $lease := include "tenure.lease" .context -}}
{{- $found := lookup "v1" "ConfigMap" .context.Release.Namespace $name -}}
{{- with dig "data" "lease" "" $found -}}
  {{- if ne . $lease -}}
    {{- fail (printf "this upgrade moves the election from the lease %s to %s, and old and new pods would have a leader each: undo the change, or set election.moved=true for this upgrade; set replicas=0 too if the workload gets another name, and upgrade again when its pods are gone (docs/kubernetes/migrating.md)" . $lease) -}}
  {{- end -}}
{{- end -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name | quote }}
  namespace: {{ .context.Release.Namespace | quote }}
  labels:
    {{- .labels | nindent 4 }}
  annotations:
    {{- include "tenure.earlier" (dict "annotations" .annotations "by" 2) | nindent 4 }}
# No pod reads it.
immutable: true
data:
  lease: {{ $lease | quote }}
{{- end -}}
{{- end -}}

{{/*
A library's own name is its alias: a chart can depend on it twice. A library without Parent has only the name of
the election, and what changes that is not refused.
*/}}
{{- define "tenure.leaseGuardName" -}}
{{- $chart := .Chart.Name -}}
{{- if .Parent -}}
{{- $chart = printf "%s.%s" .Parent.Name .Chart.Name -}}
{{- else if eq .Chart.Type "library" -}}
{{- $chart = include "tenure.fullname" . -}}
{{- end -}}
{{- printf "%s.%s.moves-only-with-election.moved" .Release.Name (lower $chart | replace "_" "-") -}}
{{- end -}}
