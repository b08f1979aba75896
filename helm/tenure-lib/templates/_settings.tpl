{{/* The settings of `tenure run`, from `election.*` and from the other values. */}}

{{/* The effective settings, as YAML: the keys of `election`, without those that do not apply. */}}
{{- define "tenure.settings" -}}
{{- $it := omit (deepCopy .Values.election) "moved" -}}
{{- $_ := set $it "election" (include "tenure.election" .) -}}
{{- $_ := set $it "store" (include "tenure.storeUrl" .) -}}
{{- if and (eq (include "tenure.storeKind" .) "azure") (eq (toString $it.azureBlobPrefix) "<nil>") -}}
{{- $_ := set $it "azureBlobPrefix" .Release.Namespace -}}
{{- end -}}
{{- /* In a pod with an IPv6 address the port is not told apart without brackets; Tenure removes those around IPv4. */ -}}
{{- $_ := set $it "advertise" (regexReplaceAll "(^|://)\\$\\(POD_IP\\)" ($it.advertise | default "") "${1}[$(POD_IP)]") -}}
{{- with .Values.tls.secretName -}}
{{- $_ := set $it "tlsCert" "/run/tenure-tls/tls.crt" -}}
{{- $_ := set $it "tlsKey" "/run/tenure-tls/tls.key" -}}
{{- if $.Values.tls.clientCertificates -}}
{{- $_ := set $it "tlsClientCa" (printf "/run/tenure-tls/%s" $.Values.tls.caKey) -}}
{{- end -}}
{{- end -}}
{{- if ne (include "tenure.storeKind" .) "mongodb" -}}{{- $it = omit $it "mongodbCollection" "mongodbAuthSource" "mongodbCompatible" -}}{{- end -}}
{{- if ne (include "tenure.storeKind" .) "postgres" -}}{{- $_ := unset $it "postgresTable" -}}{{- end -}}
{{- if ne (include "tenure.storeKind" .) "s3" -}}{{- $it = omit $it "s3Endpoint" "s3Region" "s3PathStyle" -}}{{- end -}}
{{- $servers := include "tenure.servers" . | fromYaml -}}
{{- if $servers.tlsSecret -}}
{{- $_ := set $it "storeCaFile" (printf "/run/tenure-store-tls/%s" $servers.caKey) -}}
{{- if $servers.clientCertificate -}}
{{- $_ := set $it "storeCert" "/run/tenure-store-tls/tls.crt" -}}
{{- $_ := set $it "storeKey" "/run/tenure-store-tls/tls.key" -}}
{{- end -}}
{{- end -}}
{{- if and (include "tenure.hasTls" .) (not (include "tenure.loopbackPort" .)) -}}
{{- $_ := set $it "listen" (append $it.listen (printf "127.0.0.1:%s" (include "tenure.localPort" .))) -}}
{{- end -}}
{{- /* Settings without effect are omitted. */ -}}
{{- if has .Values.routing.mode (list "label" "endpointslice") -}}
{{- $_ := set $it "kubeRoute" .Values.routing.mode -}}
{{- else -}}
{{- $_ := unset $it "kubeRoute" -}}
{{- end -}}
{{- if ne .Values.routing.mode "label" -}}{{- $_ := unset $it "kubeLabel" -}}{{- end -}}
{{- if eq .Values.routing.mode "endpointslice" -}}
{{- $_ := set $it "kubeService" (include "tenure.leaderServiceName" .) -}}
{{- else -}}
{{- $_ := unset $it "kubeService" -}}
{{- end -}}
{{- $_ := set $it "peers" (eq (include "tenure.peers" .) "true") -}}
{{- /* All candidates have certificates of one authority. */ -}}
{{- if and $it.peers .Values.tls.secretName .Values.tls.caKey (not $it.peerCa) -}}
{{- $_ := set $it "peerCa" (printf "/run/tenure-tls/%s" .Values.tls.caKey) -}}
{{- end -}}
{{- if not $it.peers -}}
{{- $it = omit $it "peerAddress" "peerCa" "preemptAfter" -}}
{{- end -}}
{{- if not $it.health -}}
{{- $it = omit $it "healthInterval" "healthTimeout" "healthFailures" "healthSuccesses" -}}
{{- end -}}
{{- if not (or $it.onActive $it.onPassive $it.onDrain $it.onLeaderChange) -}}
{{- $it = omit $it "hookTimeout" -}}
{{- end -}}
{{- toYaml $it -}}
{{- end -}}

{{/* The arguments: one flag for each value of the list settings. */}}
{{- define "tenure.args" -}}
- run
{{- range $key, $value := fromYaml (include "tenure.settings" .) }}
{{- if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "--%s=%s" (kebabcase $key) . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
The variables: one for each other setting that has a value. Commands in the container, such as
`kubectl exec POD -c tenure -- /tenure doctor`, use them too.
*/}}
{{- define "tenure.settingsEnv" -}}
{{- range $key, $value := fromYaml (include "tenure.settings" .) }}
{{- /* A switch is off without it, but for one whose default depends on another setting. */ -}}
{{- $isOff := and (eq (toString $value) "false") (ne $key "s3PathStyle") -}}
{{- if not (or (kindIs "slice" $value) $isOff (has (toString $value) (list "<nil>" ""))) }}
- name: {{ printf "TENURE_%s" ($key | snakecase | upper) }}
  value: {{ kindIs "float64" $value | ternary (toString (int64 (kindIs "float64" $value | ternary $value 0))) (toString $value) | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
"true" if the candidates are connected to each other. By default they are where the store cannot notify them:
a blob or an object in a bucket, unlike a Lease, has no watch. With TLS, they need to know the authority of their certificates.
*/}}
{{- define "tenure.peers" -}}
{{- if kindIs "bool" .Values.election.peers -}}
{{- .Values.election.peers -}}
{{- else -}}
{{- $isKnown := or (not (include "tenure.hasTls" .)) .Values.tls.clientCertificates .Values.election.peerCa -}}
{{- and (has (include "tenure.storeKind" .) (list "azure" "s3" "gs")) (include "tenure.port" . | empty | not) $isKnown | not | not -}}
{{- end -}}
{{- end -}}

{{/* The port of the first listener address that is reachable from outside the pod; else empty. */}}
{{- define "tenure.port" -}}
{{- $ports := list -}}
{{- range .Values.election.listen -}}
{{- if not (regexMatch "^(off$|unix:|127\\.|localhost:|\\[::1\\])" .) -}}
{{- $ports = append $ports (regexFind "[0-9]+$" .) -}}
{{- end -}}
{{- end -}}
{{- if $ports -}}{{- first $ports -}}{{- end -}}
{{- end -}}

{{/* "true" if that port requires TLS. */}}
{{- define "tenure.hasTls" -}}
{{- if or .Values.tls.secretName .Values.election.tlsCert -}}true{{- end -}}
{{- end -}}

{{/* "true" if that port requires certificates of clients too. */}}
{{- define "tenure.asksClients" -}}
{{- if or (and .Values.tls.secretName .Values.tls.clientCertificates) .Values.election.tlsClientCa -}}true{{- end -}}
{{- end -}}

{{/* The port of the first listener address that is 127.0.0.1 alone; else empty. */}}
{{- define "tenure.loopbackPort" -}}
{{- $ports := list -}}
{{- range .Values.election.listen -}}
{{- if regexMatch "^(127[.]0[.]0[.]1|localhost):" . -}}
{{- $ports = append $ports (regexFind "[0-9]+$" .) -}}
{{- end -}}
{{- end -}}
{{- if $ports -}}{{- first $ports -}}{{- end -}}
{{- end -}}

{{/* The port of 127.0.0.1 where the sidecar answers without TLS. */}}
{{- define "tenure.localPort" -}}
{{- if include "tenure.hasTls" . -}}
{{- include "tenure.loopbackPort" . | default (.Values.tls.localPort | int | toString) -}}
{{- else -}}
{{- include "tenure.port" . -}}
{{- end -}}
{{- end -}}
