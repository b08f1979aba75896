{{/* The settings of `tenure run`, from `election.*` and what follows from the other values. */}}

{{/* The settings that count, as YAML: each key of `election`, absent where nothing is said. */}}
{{- define "tenure.settings" -}}
{{- $it := deepCopy .Values.election -}}
{{- $_ := set $it "election" (include "tenure.election" .) -}}
{{- $_ := set $it "store" (include "tenure.storeUrl" .) -}}
{{- if and (eq (include "tenure.storeKind" .) "azure") (eq (toString $it.azureBlobPrefix) "<nil>") -}}
{{- $_ := set $it "azureBlobPrefix" .Release.Namespace -}}
{{- end -}}
{{- /* What has nothing to act on is left out. */ -}}
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
{{- if not $it.health -}}
{{- $it = omit $it "healthInterval" "healthTimeout" "healthFailures" "healthSuccesses" -}}
{{- end -}}
{{- if not (or $it.onActive $it.onPassive $it.onDrain $it.onLeaderChange) -}}
{{- $it = omit $it "hookTimeout" -}}
{{- end -}}
{{- toYaml $it -}}
{{- end -}}

{{/* The arguments: a flag for each setting that has a value, for a list one each. */}}
{{- define "tenure.args" -}}
- run
{{- range $key, $value := fromYaml (include "tenure.settings" .) }}
{{- $flag := kebabcase $key }}
{{- range (kindIs "slice" $value | ternary $value (list $value)) }}
{{- if not (has (toString .) (list "<nil>" "false" "")) }}
- {{ printf "--%s=%s" $flag (kindIs "float64" . | ternary (toString (int64 (kindIs "float64" . | ternary . 0))) (toString .)) | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The port of the status listener: of the first address that others than the pod reach; else empty. */}}
{{- define "tenure.port" -}}
{{- $ports := list -}}
{{- range .Values.election.listen -}}
{{- if not (regexMatch "^(off$|unix:|127\\.|localhost:|\\[::1\\])" .) -}}
{{- $ports = append $ports (regexFind "[0-9]+$" .) -}}
{{- end -}}
{{- end -}}
{{- if $ports -}}{{- first $ports -}}{{- end -}}
{{- end -}}
