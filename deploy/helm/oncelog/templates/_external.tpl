{{/* Address of owner number `ordinal` for clients outside the cluster's network, from a list or a pattern. */}}
{{- define "oncelog.ownerExternalHost" -}}
{{- $external := .root.Values.owner.external -}}
{{- if $external.hosts -}}
{{- index $external.hosts .ordinal -}}
{{- else -}}
{{- $external.host | replace "{ordinal}" (toString .ordinal) -}}
{{- end -}}
{{- end }}

{{- define "oncelog.ownerExternalPort" -}}
{{- $external := .root.Values.owner.external -}}
{{- if $external.ports -}}
{{- index $external.ports .ordinal | int -}}
{{- else if $external.firstPort -}}
{{- add (int $external.firstPort) .ordinal -}}
{{- else -}}
6650
{{- end -}}
{{- end }}

{{/* host:port of each owner, separated by commas; IPv6 addresses in brackets. */}}
{{- define "oncelog.ownerExternalAddresses" -}}
{{- $addresses := list -}}
{{- range $ordinal := until (int .Values.owner.replicaCount) -}}
{{- $one := dict "root" $ "ordinal" $ordinal -}}
{{- $host := include "oncelog.ownerExternalHost" $one -}}
{{- if and (contains ":" $host) (not (hasPrefix "[" $host)) }}{{ $host = printf "[%s]" $host }}{{ end -}}
{{- $addresses = append $addresses (printf "%s:%s" $host (include "oncelog.ownerExternalPort" $one)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end }}

{{/* Checks of owner.external, ingress, console and gatewayApi that the schema cannot express. */}}
{{- define "oncelog.checkExternal" -}}
{{- $external := .Values.owner.external -}}
{{- $count := int .Values.owner.replicaCount -}}
{{- if eq $external.type "" -}}
{{- if or $external.host $external.hosts $external.ports $external.firstPort -}}
{{- fail "owner.external.host, hosts, ports or firstPort is set, but owner.external.type is empty. Set it to NodePort or LoadBalancer, or remove the others." -}}
{{- end -}}
{{- else -}}
{{- if not (or $external.host $external.hosts) -}}
{{- fail (printf "owner.external.type is %s, but neither owner.external.host nor hosts is set. Set one to the host of a node or load balancer; {ordinal} in host is replaced by the owner's number." $external.type) -}}
{{- end -}}
{{- if and $external.hosts (ne (len $external.hosts) $count) -}}
{{- fail (printf "owner.external.hosts has %d entries, but owner.replicaCount is %d: set one host per owner." (len $external.hosts) $count) -}}
{{- end -}}
{{- if and $external.ports (ne (len $external.ports) $count) -}}
{{- fail (printf "owner.external.ports has %d entries, but owner.replicaCount is %d: set one port per owner." (len $external.ports) $count) -}}
{{- end -}}
{{- if and (eq $external.type "NodePort") (not $external.ports) (not $external.firstPort) -}}
{{- fail "owner.external.type is NodePort, but neither owner.external.firstPort nor ports is set. An owner must advertise its port, so Kubernetes cannot choose it." -}}
{{- end -}}
{{- $addresses := splitList "," (include "oncelog.ownerExternalAddresses" .) -}}
{{- if lt (len (uniq $addresses)) $count -}}
{{- fail (printf "two owners would have the same address (%s): use {ordinal} in owner.external.host, or set hosts, ports or firstPort." (join ", " $addresses)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "ingress.enabled is true, but ingress.host is empty: set it to the host name that clients use." -}}
{{- end -}}
{{- if and .Values.console.enabled (not .Values.auth.enabled) -}}
{{- fail "console.enabled is true, but auth.enabled is false: everybody who reaches the console would have all permissions, so the services refuse other machines. Set auth.enabled." -}}
{{- end -}}
{{- include "oncelog.requireSwitch" (dict "on" .Values.console.enabled "switch" "console.enabled" "given" .Values.console.ingress.enabled "value" "console.ingress.enabled") -}}
{{- if and .Values.console.ingress.enabled (not .Values.console.ingress.host) -}}
{{- fail "console.ingress.enabled is true, but console.ingress.host is empty: set it to the host name of the console." -}}
{{- end -}}
{{- if and .Values.gatewayApi.enabled (not .Values.gatewayApi.parentRefs) -}}
{{- fail "gatewayApi.enabled is true, but gatewayApi.parentRefs is empty: set it to the Gateway of the routes." -}}
{{- end -}}
{{- $routes := and .Values.gatewayApi.enabled -}}
{{- include "oncelog.requireKind" (dict "root" . "value" "gatewayApi.enabled" "wanted" $routes "kind" "gateway.networking.k8s.io/v1/GRPCRoute" "of" "the Gateway API") -}}
{{- end }}
