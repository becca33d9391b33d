{{/* Fails if a value is set while the switch that it depends on is off. */}}
{{- define "oncelog.requireSwitch" -}}
{{- if and .given (not .on) -}}
{{- fail (printf "%s is set, but %s is false, so it would have no effect. Set %s=true, or remove %s." .value .switch .switch .value) -}}
{{- end -}}
{{- end }}

{{/* Checks of Secrets that must exist before the release. A pod waits silently for a missing Secret, so Helm reports it. */}}

{{/* Fails unless the Secret `name` has all `keys`. value: the value that names it; space: its namespace, if not the release's. */}}
{{- define "oncelog.requireSecret" -}}
{{- $space := default .root.Release.Namespace .space -}}
{{- $files := list -}}
{{- range .keys }}{{ $files = append $files (printf "--from-file=%s" .) }}{{ end -}}
{{- $make := printf "kubectl create secret generic %s --namespace %s %s (see the chart's README.md to create these files)" .name $space (join " " $files) -}}
{{- $found := lookup "v1" "Secret" $space .name -}}
{{- if $found -}}
{{- range $key := .keys -}}
{{- if not (get ($found.data | default dict) $key) -}}
{{- fail (printf "%s is %s, but this Secret in namespace %s has no key %s. Create it again: %s" $.value $.name $space $key $make) -}}
{{- end -}}
{{- end -}}
{{- /* Every namespace has this ConfigMap. If it is not found either, then Helm does not query the cluster. */ -}}
{{- else if lookup "v1" "ConfigMap" $space "kube-root-ca.crt" -}}
{{- fail (printf "%s is %s, but there is no such Secret in namespace %s. Create it first: %s" .value .name $space $make) -}}
{{- end -}}
{{- end }}

{{/* Fails if a feature needs a kind that the cluster does not have. Helm lists kinds only if it queries the cluster. */}}
{{- define "oncelog.requireKind" -}}
{{- $known := .root.Capabilities.APIVersions -}}
{{- if and .wanted ($known.Has "apps/v1/StatefulSet") (not ($known.Has .kind)) -}}
{{- fail (printf "%s is true, but the cluster does not have %s. Install %s first, or set it to false." .value .kind .of) -}}
{{- end -}}
{{- end }}

{{/* Fails if a PodDisruptionBudget lets all pods be unavailable. of: the values that have it; replicas: its pods. */}}
{{- define "oncelog.checkBudget" -}}
{{- $others := sub (int .replicas) 1 | max 1 -}}
{{- with .budget -}}
{{- if and .enabled (gt (int .maxUnavailable) (int $others)) -}}
{{- fail (printf "%s.podDisruptionBudget.maxUnavailable is %d: of %d pods at most %d may be unavailable. Lower it." $.of (int .maxUnavailable) (int $.replicas) (int $others)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The bytes of a volume size such as 1.5Gi, as the schema allows it. */}}
{{- define "oncelog.bytes" -}}
{{- $units := dict "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- mulf (regexFind "^[0-9.]+" .) (get $units (regexFind "[A-Za-z]+$" .)) | floor | int64 -}}
{{- end }}
