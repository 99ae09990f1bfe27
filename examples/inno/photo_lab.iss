; ISCC /DVERSION=1.0.0 /DFOLDER=C:\build\photo-lab photo_lab.iss
[Setup]
AppId={{6A9E5A8E-3F4B-4F0C-9D2A-2F6C1C2A7B11}
AppName=Photo Lab
AppVersion={#VERSION}
DefaultDirName={localappdata}\Programs\Photo Lab
DisableProgramGroupPage=yes
PrivilegesRequired=lowest
ArchitecturesAllowed=x64compatible
ArchitecturesInstallIn64BitMode=x64compatible
OutputBaseFilename=photo-lab-{#VERSION}-setup
CloseApplications=yes

[Files]
Source: "{#FOLDER}\*"; DestDir: "{app}"; Flags: recursesubdirs ignoreversion

[Icons]
Name: "{userprograms}\Photo Lab"; Filename: "{app}\photo-lab.exe"

[Run]
; skipifsilent: licclient opens the app after an update
Filename: "{app}\photo-lab.exe"; Description: "Photo Lab"; Flags: postinstall nowait skipifsilent
